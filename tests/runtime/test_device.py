"""Devices."""

from __future__ import annotations

import pytest

from tilewright import runtime


def test_names_and_numbers_give_devices() -> None:
    assert str(runtime.cpu()) == "cpu(0)"
    assert str(runtime.cuda(1)) == "cuda(1)"
    assert runtime.device("llvm", 0) == runtime.cpu(0) == runtime.device(1)
    assert runtime.device("c") == runtime.cpu()
    assert runtime.device("llvm -mcpu=skylake") == runtime.cpu()
    assert runtime.device("cuda", 2).device_id == 2


def test_only_the_cpu_exists() -> None:
    assert runtime.cpu().exist
    assert not runtime.cuda().exist
    runtime.cpu().sync()


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown device type 'cpuu'; known: .*cpu"):
        runtime.device("cpuu")


def test_array_on_an_absent_device_is_refused_by_name() -> None:
    with pytest.raises(runtime.TVMError, match=r"opencl\(3\)"):
        runtime.empty((2,), device=runtime.opencl(3))
