"""Versions of a program for some shapes: which runs, that it gives what numpy does, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.gpu import GPU, GPU_TARGET, need_gpu
from tests.relay.frontend.dynamic_models import model_of

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import DimVar
from tilewright.runtime.bytecode import Opcode
from tilewright.runtime.vm import Executable, VirtualMachine, with_room

Array = np.ndarray[Any, Any]
F32 = "float32"
OPTION = "relay.vm.specialize"
WEIGHT = np.random.default_rng(1).standard_normal((24, 16)).astype(F32)


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F32)


def compiled(func: relay.Function, text: str, target: str = "llvm") -> Executable:
    with tvm.transform.PassContext(opt_level=3, config={OPTION: text}):
        return relay.vm.compile(func, target)


def layer() -> relay.Function:
    """softmax(x W^T + y) of batch x seq rows; the reshape has both names in its attributes."""
    batch, seq = DimVar("batch", 0, 8), DimVar("seq", 0, 64)
    x = relay.var("x", relay.TensorType((batch, seq, 16), F32))
    y = relay.var("y", relay.TensorType((batch, seq, 24), F32))
    rows = relay.nn.dense(relay.reshape(x, (-1, 16)), relay.const(WEIGHT))
    return relay.Function([x, y], relay.nn.softmax(relay.add(relay.reshape_like(rows, y), y)))


def layer_of(x: Array, y: Array) -> Array:
    scores = x @ WEIGHT.T + y
    grown = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    return np.asarray(grown / grown.sum(-1, keepdims=True))


SHAPES = [(1, 7), (1, 8), (2, 7), (3, 16), (3, 31), (3, 32), (3, 33), (1, 1), (0, 7), (1, 0), (8, 64)]
VERSIONS = "batch=1,seq=7; batch=3,seq=16:32; seq=1; batch=0"


@pytest.fixture(scope="module")
def layers() -> Executable:
    return compiled(layer(), VERSIONS)


def test_every_shape_gives_what_numpy_does(layers: Executable) -> None:
    assert layers.globals == ["main", "main$batch=1,seq=7", "main$batch=3,seq=16:32", "main$seq=1", "main$batch=0"]
    machine = VirtualMachine(Executable.load_exec(*layers.save()), runtime.cpu())
    for batch, seq in SHAPES:
        x, y = floats(batch, seq, 16), floats(batch, seq, 24)
        np.testing.assert_allclose(machine.run(x, y).numpy(), layer_of(x, y), rtol=1e-5, atol=1e-6)


def test_the_first_version_that_fits_runs(layers: Executable) -> None:
    profiler = runtime.profiler_vm.VirtualMachineProfiler(layers, runtime.cpu())
    code = layers.code
    kernels = {
        func.name: {
            code.packed[i.fields[0]] for i in func.instructions if i.opcode == Opcode.INVOKE_PACKED
        }
        for func in code.functions
    }  # fmt: skip
    for (batch, seq), name in {
        (1, 7): "main$batch=1,seq=7",
        (3, 16): "main$batch=3,seq=16:32",
        (3, 32): "main$batch=3,seq=16:32",
        (3, 33): "main",
        (2, 7): "main",
        (5, 1): "main$seq=1",
    }.items():
        report = profiler.profile(floats(batch, seq, 16), floats(batch, seq, 24))
        ran = {str(call["Name"]) for call in report.calls if "dense" in str(call["Name"])}
        assert ran and ran <= kernels[name], (batch, seq)


def test_a_version_of_numbers_computes_no_shapes(layers: Executable) -> None:
    version = layers.code.functions[1]
    assert not any(i.opcode in (Opcode.SHAPE_OF, Opcode.ALLOC_TENSOR_REG) for i in version.instructions)


def test_versions_share_weights() -> None:
    x = relay.var("x", relay.TensorType((DimVar("rows", 1, 9), 64), F32))
    func = relay.Function([x], relay.nn.dense(x, relay.const(floats(32, 64))))
    sizes = [compiled(func, text).build_report.parameter_bytes for text in ("", "rows=7;rows=8")]
    guards = 2 * 5 * 8
    assert sizes[1] == sizes[0] + guards


@pytest.mark.parametrize(("dtype", "tolerance"), [(F32, 1e-5), ("bfloat16", 1e-2)])
def test_versions_of_one_row_and_of_many_hold_a_large_matrix_once(dtype: str, tolerance: float) -> None:
    kind = runtime.ndarray.numpy_dtype(dtype)
    weight = floats(1500, 1024 * 4 // kind.itemsize).astype(kind)
    x = relay.var("x", relay.TensorType((DimVar("rows", 1, 64), weight.shape[1]), dtype))
    func = relay.Function([x], relay.nn.dense(x, relay.const(tvm.nd.array(weight))))
    exe = compiled(func, "rows=1;rows=32")
    assert exe.build_report.parameter_bytes < 1.1 * weight.nbytes
    machine = VirtualMachine(exe, runtime.cpu())
    for rows in (1, 5, 32):
        value = floats(rows, weight.shape[1]).astype(kind)
        expected = value.astype("float64") @ weight.T.astype("float64")
        found = machine.run(tvm.nd.array(value)).numpy().astype("float64")
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_inputs_that_do_not_fit_the_program_are_refused_first(layers: Executable) -> None:
    machine = VirtualMachine(layers, runtime.cpu())
    with pytest.raises(runtime.TVMError, match=r'"y": dimension 1, seq, is 8 here and 7 in "x"'):
        machine.run(floats(1, 7, 16), floats(1, 8, 24))
    with pytest.raises(runtime.TVMError, match="batch is 9; the program was compiled for 0 to 8"):
        machine.run(floats(9, 7, 16), floats(9, 7, 24))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batsh=1", "no dimension 'batsh'.*batch.*its named dimensions are batch .0:8., seq .0:64."),
        ("batch=9", "batch=9 is not within 0:8"),
        ("seq=1:65", "seq=1:65 is not within 0:64"),
        ("seq=9:3", "seq=9:3 is not within 0:64"),
        ("seq", "'seq' is not of the form seq=128"),
        ("seq=many", "seq=many is not of the form"),
        ("seq=1,seq=2", "sets seq twice"),
    ],
)
def test_what_is_no_version_is_refused(text: str, said: str) -> None:
    with pytest.raises(TilewrightError, match=said):
        compiled(layer(), text)


def test_a_number_that_is_no_multiple_is_refused() -> None:
    x = relay.var("x", relay.TensorType((DimVar("rows", 0, 64, 8),), F32))
    with pytest.raises(TilewrightError, match="rows is a multiple of 8, which 12 is not"):
        compiled(relay.Function([x], relay.exp(x)), "rows=12")


def test_versions_of_a_program_with_a_branch() -> None:
    rows = DimVar("rows", 1, 50)
    x, flag = relay.var("x", relay.TensorType((rows, 4), F32)), relay.var("flag", relay.TensorType((), "bool"))
    func = relay.Function([flag, x], relay.If(flag, relay.exp(x), relay.reverse(x, axis=1)))
    machine = VirtualMachine(compiled(func, "rows=5;rows=7:9"), runtime.cpu())
    for count in (1, 5, 7, 9, 10):
        data = floats(count, 4)
        for taken in (True, False):
            wanted = np.exp(data) if taken else data[:, ::-1]
            np.testing.assert_allclose(machine.run(np.array(taken), data).numpy(), wanted, rtol=1e-5)


def test_versions_of_a_program_of_several_functions() -> None:
    rows = DimVar("rows", 1, 50)
    count, x = relay.var("i", shape=(), dtype="int32"), relay.var("x", relay.TensorType((rows,), F32))
    mod, twice = tvm.IRModule(), relay.GlobalVar("twice")
    again = relay.Call(twice, [relay.subtract(count, relay.const(1)), relay.add(x, x)])
    body = relay.If(relay.equal(count, relay.const(0)), x, again)
    mod[twice] = relay.Function([count, x], body, relay.TensorType((rows,), F32))
    i, y = relay.var("i", shape=(), dtype="int32"), relay.var("y", relay.TensorType((rows,), F32))
    mod["main"] = relay.Function([i, y], relay.Call(twice, [i, y]))
    with tvm.transform.PassContext(config={OPTION: "rows=3"}):
        machine = VirtualMachine(relay.vm.compile(mod, "llvm"), runtime.cpu())
    for rows_here in (1, 3, 7):
        np.testing.assert_allclose(machine.run(np.int32(4), floats(rows_here)).numpy(), 16 * floats(rows_here))


def test_one_file_runs_its_versions_without_the_compiler(layers: Executable, tmp_path: Path) -> None:
    layers.export_library(tmp_path / "layer.so")
    inputs = {f"{kind}{i}": floats(b, s, n) for i, (b, s) in enumerate(SHAPES) for kind, n in (("x", 16), ("y", 24))}
    np.savez(tmp_path / "in.npz", **inputs)
    script = """
import sys, numpy as np
from tilewright import runtime
given = np.load(sys.argv[2])
machine = runtime.vm.VirtualMachine(runtime.load_module(sys.argv[1]), runtime.cpu())
count = len(given.files) // 2
np.savez(sys.argv[3], *(machine.run(given[f"x{i}"], given[f"y{i}"]).numpy() for i in range(count)))
assert not [name for name in sys.modules if name.startswith("tilewright.relay")]
"""
    files = [str(tmp_path / name) for name in ("layer.so", "in.npz", "out.npz")]
    subprocess.run([sys.executable, "-c", script, *files], check=True)
    found = np.load(tmp_path / "out.npz")
    for i in range(len(SHAPES)):
        wanted = layer_of(inputs[f"x{i}"], inputs[f"y{i}"])
        np.testing.assert_allclose(found[f"arr_{i}"], wanted, rtol=1e-5, atol=1e-6)


def test_versions_of_a_model_whose_shapes_are_computed() -> None:
    model = model_of("""(float[batch, seq, 6] x) => (float[batch, m, n, 3] y) {
        s = Shape <start = 0, end = 2> (x)
        tail = Constant <value = int64[2] {2, 3}> ()
        shape = Concat <axis = 0> (s, tail)
        heads = Reshape(x, shape)
        y = Transpose <perm = [0, 2, 1, 3]> (heads)
    }""")
    mod, params = relay.frontend.from_onnx(model, dims={"batch": (1, 4), "seq": (1, 9)})
    with tvm.transform.PassContext(opt_level=3, config={OPTION: "batch=1,seq=5;batch=2"}):
        machine = VirtualMachine(relay.vm.compile(mod, "llvm", params=params), runtime.cpu())
    for batch, seq in ((1, 5), (2, 5), (2, 1), (1, 1), (3, 7)):
        x = floats(batch, seq, 6)
        wanted = x.reshape(batch, seq, 2, 3).transpose(0, 2, 1, 3)
        np.testing.assert_allclose(machine.run(x).numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_versions_run_on_a_device() -> None:
    need_gpu()
    machine = VirtualMachine(compiled(layer(), "batch=1,seq=7", GPU_TARGET), [GPU, tvm.cpu()])
    for batch, seq in ((1, 7), (2, 3)):
        x, y = floats(batch, seq, 16), floats(batch, seq, 24)
        np.testing.assert_allclose(machine.run(x, y).numpy(), layer_of(x, y), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("axis", "dims"), [(1, (2, 4)), (2, (1, 3, 4)), (0, (4,))])
def test_caches_append_in_place_from_version_to_version(axis: int, dims: tuple[int, ...]) -> None:
    """Memory that one version's result lies in, the next version and the general program continue."""
    rows = (*dims[:axis], DimVar("length", 0, 64), *dims[axis:])
    past = relay.var("past", relay.TensorType(rows, F32))
    new = relay.var("new", relay.TensorType((*dims[:axis], 1, *dims[axis:]), F32))
    whole = relay.concatenate((past, new), axis=axis)
    sums = relay.sum(relay.exp(past), axis=-1)
    exe = compiled(relay.Function([past, new], relay.Tuple([whole, relay.tanh(whole), sums])), "length=3;length=7:12")
    machine = VirtualMachine(Executable.load_exec(*exe.save()), tvm.cpu())
    made = np.zeros((*dims[:axis], 0, *dims[axis:]), F32)
    cache = with_room(made, axis, 20)
    place = int(cache._tensor.data)
    for _ in range(20):
        row = floats(*dims[:axis], 1, *dims[axis:])
        before, (cache, curved, totals) = made, machine.run(cache, row)
        made = np.concatenate([before, row], axis)
        np.testing.assert_array_equal(cache.numpy(), made)
        np.testing.assert_allclose(curved.numpy(), np.tanh(made), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(totals.numpy(), np.exp(before).sum(-1), rtol=1e-5)
        assert int(cache._tensor.data) == place


def test_a_cache_has_strides_in_some_versions() -> None:
    """Of one batch, memory with room is compact; of more it is strided."""
    batch, length = DimVar("batch", 1, 8), DimVar("length", 0, 64)
    past = relay.var("past", relay.TensorType((batch, length, 4), F32))
    new = relay.var("new", relay.TensorType((batch, 1, 4), F32))
    whole = relay.concatenate((past, new), axis=1)
    exe = compiled(relay.Function([past, new], relay.Tuple([whole, relay.exp(whole)])), "batch=1;batch=2,length=5")
    machine = VirtualMachine(Executable.load_exec(*exe.save()), tvm.cpu())
    for count in (1, 2, 3):
        cache: Any = with_room(floats(count, 4, 4), 1, 6)
        for _ in range(4):
            before, row = cache.numpy(), floats(count, 1, 4)
            cache, grown = machine.run(cache, row)
            np.testing.assert_array_equal(cache.numpy(), np.concatenate([before, row], 1))
            np.testing.assert_allclose(grown.numpy(), np.exp(cache.numpy()), rtol=1e-5)


def test_what_does_not_grow_in_the_general_program_grows_in_no_version() -> None:
    """Extents are known in a version: every join there would have one that may grow."""
    x = relay.var("x", relay.TensorType((DimVar("n", 1, 9), 3), F32))
    exe = compiled(relay.Function([x], relay.concatenate((x, relay.exp(x)), axis=1)), "n=3")
    assert "tilewright.vm.append" not in exe.primitive_ops
    found = VirtualMachine(exe, tvm.cpu()).run(floats(3, 3))
    np.testing.assert_allclose(found.numpy(), np.concatenate([floats(3, 3), np.exp(floats(3, 3))], 1), rtol=1e-5)
    assert found.is_contiguous
