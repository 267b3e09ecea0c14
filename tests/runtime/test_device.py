"""Devices."""

from __future__ import annotations

import pytest

from tilewright import runtime
from tilewright.target import Target


def test_names_and_numbers_give_devices() -> None:
    assert str(runtime.cpu()) == "cpu(0)"
    assert str(runtime.cuda(1)) == "cuda(1)"
    assert runtime.device("llvm", 0) == runtime.cpu(0) == runtime.device(1)
    assert runtime.device("c") == runtime.cpu()
    assert runtime.device("llvm -mcpu=skylake") == runtime.cpu()
    assert runtime.device("cuda", 2).device_id == 2


def test_devices_that_nobody_drives_do_not_exist() -> None:
    assert runtime.cpu().exist
    assert not runtime.metal().exist
    assert runtime.cpu().is_host and not runtime.cuda().is_host
    runtime.cpu().sync()


def test_attributes_that_a_device_does_not_tell_are_none() -> None:
    assert runtime.cpu().device_name is runtime.cpu().max_thread_dimensions is None
    with pytest.raises(runtime.TVMError, match=r"metal\(0\).* no plug-in has registered it"):
        assert runtime.metal().warp_size
    ask = runtime.get_global_func("runtime.GetDeviceAttr")
    assert ask is not None and ask(1, 0, 0) == 1 and ask(8, 0, 0) == 0 and ask(1, 0, 5) is None


def test_a_target_gives_its_device() -> None:
    assert runtime.device(Target("llvm"), 0) == runtime.cpu()
    assert runtime.device(Target("c"), 0) == runtime.cpu()
    with pytest.raises(TypeError, match="not by list"):
        runtime.device([])


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown device type 'cpuu'; known: .*cpu"):
        runtime.device("cpuu")


def test_array_on_an_absent_device_is_refused_by_name() -> None:
    with pytest.raises(runtime.TVMError, match=r"opencl\(3\)"):
        runtime.empty((2,), device=runtime.opencl(3))
