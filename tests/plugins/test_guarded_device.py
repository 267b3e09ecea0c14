"""A device in C whose memory the host cannot touch (examples/plugins/guarded_device)."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.plugins.conftest import NOTHING_INSTALLED, PLUGINS, compile_plugin

import tilewright as tvm
from tilewright import runtime
from tilewright.runtime.ndarray import numpy_view


def allocated() -> int:
    function = runtime.get_global_func("guarded.allocated")
    assert function is not None
    return function()


def test_the_device_is_found_by_name(guarded: runtime.Device, guarded_library: Path) -> None:
    runtime.load_device_plugin(guarded_library)  # does nothing
    assert guarded == runtime.device(65) == (65, 0)
    assert str(guarded) == "guarded(0)"
    assert guarded.exist and not runtime.device("guarded", 1).exist
    assert runtime.enabled("guarded")
    assert not guarded.is_host and runtime.cpu().is_host


def test_attributes_are_the_devices_or_none(guarded: runtime.Device) -> None:
    assert guarded.device_name == "pages of the host, closed"
    for name in ("max_threads_per_block", "warp_size", "max_shared_memory_per_block", "compute_version"):
        assert getattr(guarded, name) is None
    for name in ("max_clock_rate", "multi_processor_count", "max_thread_dimensions", "api_version", "driver_version"):
        assert getattr(guarded, name) is None
    stream = guarded.create_raw_stream()
    guarded.set_raw_stream(stream)
    guarded.sync(stream)
    guarded.free_raw_stream(stream)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 3), (4096,), (2, 0, 5), (129, 257)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "bool"])
def test_arrays_round_trip(guarded: runtime.Device, shape: tuple[int, ...], dtype: str) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    array = tvm.nd.array(values, guarded)
    assert array.device == guarded and array.shape == shape and array.dtype == dtype
    np.testing.assert_array_equal(array.numpy(), values)
    there = array.copyto(guarded)
    back = there.copyto(tvm.cpu())
    np.testing.assert_array_equal(back.numpy(), values)
    there.copyfrom(np.zeros(shape, dtype))
    assert not there.numpy().any()
    np.testing.assert_array_equal(array.numpy(), values)


def test_memory_is_given_back(guarded: runtime.Device) -> None:
    before = allocated()
    arrays = [tvm.nd.empty((1000,), "int8", guarded) for _ in range(3)]
    assert allocated() == before + 3000
    del arrays
    assert allocated() == before


def test_transposed_numpy_arrays_are_copied(guarded: runtime.Device) -> None:
    values = np.arange(15, dtype="float32").reshape(3, 5).T
    np.testing.assert_array_equal(tvm.nd.array(values, guarded).numpy(), values)
    out = np.zeros((3, 5), "float32")
    runtime.numpyasarray(values).copyto(there := tvm.nd.empty((5, 3), "float32", guarded))
    there.copyto(shared := runtime.numpyasarray(out.T))
    np.testing.assert_array_equal(shared.numpy(), values)


def test_the_host_is_told_that_it_cannot_look(guarded: runtime.Device) -> None:
    array = tvm.nd.array(np.ones(3, "float32"), guarded)
    with pytest.raises(tvm.TVMError, match=r"host cannot touch memory of guarded\(0\); copy the array"):
        numpy_view(array)
    with pytest.raises(BufferError, match=r"only Tilewright knows guarded\(0\); copy the array"):
        np.from_dlpack(array)


def test_arrays_are_shared_within_the_process(guarded: runtime.Device) -> None:
    array = tvm.nd.array(np.ones(3, "float32"), guarded)
    for same in (runtime.from_dlpack(array), runtime.from_dlpack(array.to_dlpack())):
        assert same.device == guarded
        array.copyfrom(np.full(3, 7))
        np.testing.assert_array_equal(same.numpy(), [7, 7, 7])


def test_what_the_device_refuses_is_said(guarded: runtime.Device) -> None:
    with pytest.raises(tvm.TVMError, match=r'guarded\(0\): its only memory scope is "global"'):
        tvm.nd.empty((3,), "float32", guarded, "texture")
    with pytest.raises(tvm.TVMError, match=r"guarded\(0\): it has no room for \d+ bytes"):
        tvm.nd.empty((1 << 60,), "int8", guarded)
    with pytest.raises(tvm.TVMError, match=r"there is no device guarded\(1\)"):
        tvm.nd.empty((3,), "float32", runtime.device("guarded", 1))


def test_parameters_on_the_device_are_saved(guarded: runtime.Device) -> None:
    values = np.arange(6, dtype="float32").reshape(2, 3)
    saved = runtime.save_param_dict({"w": tvm.nd.array(values, guarded)})
    np.testing.assert_array_equal(runtime.load_param_dict(saved)["w"].numpy(), values)


def test_a_function_is_launched_in_open_memory(guarded: runtime.Device) -> None:
    launch = runtime.get_global_func("guarded.launch")
    assert launch is not None

    def on_device(source: runtime.NDArray, target: runtime.NDArray) -> None:
        assert source.device == target.device == guarded
        (ctypes.c_float * 5).from_address(target._tensor.data)[:] = (ctypes.c_float * 5).from_address(
            source._tensor.data
        )

    source, target = tvm.nd.array(np.arange(5, dtype="float32"), guarded), tvm.nd.empty((5,), "float32", guarded)
    launch(on_device, source, target)
    launch(on_device, target, target)
    np.testing.assert_array_equal(target.numpy(), [0, 1, 2, 3, 4])
    with pytest.raises(tvm.TVMError, match="argument 0 must be a function"):
        launch(source)


def python(program: str, *path: Path) -> subprocess.CompletedProcess[str]:
    lines = "".join(f"sys.path.insert(0, {str(p)!r})\n" for p in path)
    return subprocess.run([sys.executable, "-c", "import sys\n" + lines + program], capture_output=True, text=True)


def test_the_installed_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    options = ["--no-build-isolation", "--no-deps", "--quiet", "--disable-pip-version-check", "--target", str(tmp_path)]
    source = tmp_path / "source"
    subprocess.run(["cp", "-r", str(PLUGINS / "guarded_device"), str(source)], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    program = """
import numpy as np
import tilewright as tvm
dev = tvm.device("guarded", 0)
print(dev, dev.exist, tvm.nd.array(np.arange(3), dev).numpy())
x = tvm.te.placeholder((3,), name="x")
double = tvm.te.create_schedule((y := tvm.te.compute((3,), lambda i: x[i] * 2)).op)
there, result = tvm.nd.array(np.arange(3, dtype="float32"), dev), tvm.nd.empty((3,), "float32", dev)
tvm.build(double, [x, y], "guarded")(there, result)
print(result.numpy())
"""
    found = python(program, tmp_path)
    assert found.stdout == "guarded(0) True [0 1 2]\n[0. 2. 4.]\n", found.stderr
    assert "unknown device type 'guarded'" in python(NOTHING_INSTALLED + program).stderr


def test_a_package_that_does_not_load_is_named(tmp_path: Path) -> None:
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-device\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tilewright.devices]\nbroken = nowhere_at_all:load\n")
    done = python("import tilewright\nprint(tilewright.cuda(0).exist)\ntilewright.device('broken')", tmp_path)
    assert done.stdout == "False\n"
    assert "the plug-in 'broken' (nowhere_at_all:load) of the package broken-device cannot be loaded" in done.stderr
    assert "unknown device type 'broken'" in done.stderr


BAD = """
#include <tilewright.h>
static int count(void* ctx, int* out) {{ (void)ctx; *out = 1; return 0; }}
TVM_DLL int TilewrightPluginInit(void) {{
  TilewrightDeviceAPI api = {{.struct_size = sizeof api, .name = "bad", .device_type = {number}, .count = count}};
  {more}
  return TilewrightDeviceRegister(&api);
}}
"""


@pytest.mark.parametrize(
    ("number", "more", "message"),
    [
        (66, "", r'did not start: device plug-in "bad" lacks the function alloc'),
        (66, "api.struct_size = 12;", "a size of 12 bytes"),
        (1, "", "lacks the function alloc"),
        (66, "return 3;", "TilewrightPluginInit failed and left no message"),
    ],
)
def test_a_plugin_that_is_not_right_is_refused(number: int, more: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text(BAD.format(number=number, more=more))
    plugin = compile_plugin(tmp_path / "bad.c", tmp_path / "bad.so")
    with pytest.raises(tvm.TVMError, match=message):
        runtime.load_device_plugin(plugin)


def test_what_is_no_plugin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tvm.TVMError, match=r"cannot load the plug-in .*missing\.so"):
        runtime.load_device_plugin(tmp_path / "missing.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(tvm.TVMError, match=r"text\.so"):
        runtime.load_device_plugin(tmp_path / "text.so")
