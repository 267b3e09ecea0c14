"""One library for shapes that change: operators with unknown dimensions against numpy, and what must be refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tilewright import relay, runtime
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import DimVar
from tilewright.ir.transform import PassContext
from tilewright.runtime.bytecode import Opcode
from tilewright.runtime.vm import Executable, VirtualMachine

Array = np.ndarray[Any, Any]
SIZES = (0, 1, 2, 7, 33)
F32 = "float32"


def floats(*shape: int) -> Array:
    """The same numbers for the same shape."""
    return np.random.default_rng(7).standard_normal(shape).astype(F32)


def machine(build: Callable[..., Any], types: Sequence[tuple[Any, str]]) -> VirtualMachine:
    """The operator compiled; None is a dimension that is not known."""
    shapes = [(tuple(AnyDim() if d is None else d for d in shape), dtype) for shape, dtype in types]
    params = [relay.var(f"p{i}", relay.TensorType(shape, dtype)) for i, (shape, dtype) in enumerate(shapes)]
    exe = relay.vm.compile(IRModule.from_expr(relay.Function(params, build(*params))), "llvm")
    return VirtualMachine(Executable.load_exec(*exe.save()), runtime.cpu())


def softmax(x: Array) -> Array:
    """Over the last axis."""
    grown = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(grown / grown.sum(-1, keepdims=True))


def conv3x3(x: Array, w: Array) -> Array:
    """With a border of one."""
    n, _, height, width = x.shape
    padded, result = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), np.zeros((n, w.shape[0], height, width), F32)
    for i in range(3):
        for j in range(3):
            result += np.einsum("nchw,oc->nohw", padded[:, :, i : i + height, j : j + width], w[:, :, i, j])
    return result


def pool(x: Array) -> Array:
    """The largest of 2x2."""
    n, c, h, w = x.shape
    even = x[:, :, : h // 2 * 2, : w // 2 * 2].reshape(n, c, h // 2, 2, w // 2, 2)
    return np.asarray(even.max((3, 5)))


def normalized(x: Array, g: Array, b: Array) -> Array:
    """Layer norm."""
    return np.asarray((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b)


COLUMN, GRID = ((None, 4), F32), ((None, None), F32)
columns = [(floats(n, 4),) for n in SIZES]
grids = [(floats(n, m),) for n in SIZES for m in SIZES]
full_grids = [(x,) for (x,) in grids if x.shape[1]]
pairs = [(3, 3), (1, 5), (5, 1), (0, 1), (1, 0), (1, 1), (0, 0)]
CASES: dict[str, tuple[Callable[..., Any], list[tuple[Any, str]], Sequence[tuple[Array, ...]], Callable[..., Any]]] = {
    "broadcast": (lambda a, b: a * b, [COLUMN] * 2, [(floats(n, 4), floats(m, 4)) for n, m in pairs], np.multiply),
    "broadcast to 3": (
        lambda a, b: a + b, [COLUMN, ((3, 4), F32)], [(floats(n, 4), floats(3, 4)) for n in (1, 3)], np.add,
    ),
    "softmax": (relay.nn.softmax, [GRID], full_grids, softmax),
    "dense": (
        relay.nn.dense, [GRID, ((5, None), F32)],
        [(floats(n, m), floats(5, m)) for n in SIZES for m in SIZES], lambda a, b: a @ b.T,
    ),
    "chain": (
        lambda a, w: relay.nn.softmax(relay.nn.relu(relay.nn.dense(a, w) + relay.const(1.0))), [COLUMN, ((5, 4), F32)],
        [(floats(n, 4), floats(5, 4)) for n in SIZES], lambda a, w: softmax(np.maximum(a @ w.T + 1, 0)),
    ),
    "sum": (lambda a: relay.sum(a, axis=1), [GRID], grids, lambda a: a.sum(1)),
    "argmax": (lambda a: relay.argmax(a, axis=1), [GRID], full_grids, lambda a: a.argmax(1).astype("int32")),
    "concatenate": (
        lambda a, b: relay.concatenate([a, b], axis=0), [COLUMN] * 2,
        [(floats(n, 4), floats(m, 4)) for n in SIZES for m in SIZES], lambda a, b: np.concatenate([a, b]),
    ),
    "reshape": (
        lambda a: relay.reshape(a, (-1, 8)), [COLUMN],
        [(floats(n, 4),) for n in (0, 2, 10)], lambda a: a.reshape(-1, 8),
    ),
    "reshape with copied": (
        lambda a: relay.reshape(a, (0, -1, 2)), [((None, 4, None), F32)],
        [(floats(n, 4, m),) for n in (1, 3) for m in (2, 5)], lambda a: a.reshape(a.shape[0], -1, 2),
    ),
    "transpose": (relay.transpose, [GRID], grids, np.transpose),
    "slice": (lambda a: relay.strided_slice(a, [0, 1], [2, 3]), [GRID], grids, lambda a: a[0:2, 1:3]),
    "take": (
        lambda a, b: relay.take(a, b, axis=0), [COLUMN, ((None,), "int32")],
        [(floats(n, 4), np.arange(m, dtype="int32") % n) for n in SIZES[1:] for m in SIZES], lambda a, b: a[b],
    ),
    "max_pool2d": (
        lambda a: relay.nn.max_pool2d(a, (2, 2), (2, 2)), [((None, 3, None, None), F32)],
        [(floats(n, 3, m, m),) for n in (1, 3) for m in (4, 7)], pool,
    ),
    "batch_matmul": (
        relay.nn.batch_matmul, [((None, None, 4), F32), ((None, 5, 4), F32)],
        [(floats(n, m, 4), floats(n, 5, 4)) for n in SIZES for m in SIZES], lambda a, b: a @ b.transpose(0, 2, 1),
    ),
    "pad": (lambda a: relay.nn.pad(a, ((1, 1), (0, 2))), [COLUMN], columns, lambda a: np.pad(a, ((1, 1), (0, 2)))),
    "split": (lambda a: relay.split(a, 2, axis=1).astuple(), [COLUMN], columns, lambda a: np.split(a, 2, 1)),
    "split of unknown extents": (
        lambda a: relay.split(a, 3, axis=1).astuple(), [GRID],
        [(floats(n, m),) for n in (0, 2) for m in (0, 3, 12)], lambda a: np.split(a, 3, 1),
    ),
    "split at indices": (
        lambda a: relay.split(a, (2, 2, 5), axis=0).astuple(), [COLUMN],
        [(floats(n, 4),) for n in (5, 6, 11)], lambda a: np.split(a, (2, 2, 5)),
    ),
    "split at indices from the end": (
        lambda a: relay.split(a, (1, -3, -1), axis=1).astuple(), [GRID],
        [(floats(n, m),) for n in (1, 3) for m in (4, 7)], lambda a: np.split(a, (1, -3, -1), 1),
    ),
    "layer_norm": (
        relay.nn.layer_norm, [COLUMN, ((4,), F32), ((4,), F32)],
        [(floats(n, 4), floats(4), floats(4)) for n in SIZES], normalized,
    ),
    "conv2d": (
        lambda x, w: relay.nn.conv2d(x, w, padding=(1, 1), kernel_size=(3, 3), channels=8),
        [((None, 3, None, None), F32), ((8, 3, 3, 3), F32)],
        [(floats(n, 3, h, w), floats(8, 3, 3, 3)) for n in (1, 2) for h in (5, 8) for w in (1, 7)], conv3x3,
    ),
    "shape_of": (relay.shape_of, [GRID], grids, lambda a: np.array(a.shape, "int32")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_program_runs_all_shapes(name: str) -> None:
    build, types, data, reference = CASES[name]
    vm = machine(build, types)
    for inputs in data:
        expected, found = reference(*inputs), vm.run(*inputs)
        for want, got in zip(expected, found, strict=True) if isinstance(expected, list) else [(expected, found)]:
            assert got.shape == want.shape
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)


REFUSED: dict[str, tuple[Callable[..., Any], list[tuple[Any, str]], tuple[Array, ...]]] = {
    "broadcast": (lambda a, b: a + b, [COLUMN] * 2, (floats(2, 4), floats(3, 4))),
    "dense": (relay.nn.dense, [GRID, ((5, 4), F32)], (floats(2, 5), floats(5, 4))),
    "dense of less": (relay.nn.dense, [GRID, ((5, 4), F32)], (floats(2, 3), floats(5, 4))),
    "bias": (lambda a, b: relay.nn.bias_add(a, b, 1), [GRID, ((4,), F32)], (floats(2, 5), floats(4))),
    "bias of more": (lambda a, b: relay.nn.bias_add(a, b, 1), [GRID, ((4,), F32)], (floats(2, 3), floats(4))),
    "concatenate": (lambda a, b: relay.concatenate([a, b], axis=0), [GRID] * 2, (floats(2, 4), floats(3, 5))),
    "reshape": (lambda a: relay.reshape(a, (-1, 8)), [COLUMN], (floats(3, 4),)),
    "split": (lambda a: relay.split(a, 3, axis=0).astuple(), [COLUMN], (floats(4, 4),)),
    "one part of a split": (lambda a: relay.split(a, (2, 5), axis=0)[0], [COLUMN], (floats(1, 4),)),
    "split beyond the end": (lambda a: relay.split(a, (2, 5), axis=0)[1], [COLUMN], (floats(4, 4),)),
    "split before the start": (lambda a: relay.split(a, (-3,), axis=0)[1], [COLUMN], (floats(2, 4),)),
    "reshape to a known shape": (lambda a: relay.reshape(a, (2, 6)), [COLUMN], (floats(2, 4),)),
    "rank": (relay.nn.relu, [COLUMN], (floats(3),)),
    "known dimension": (relay.nn.relu, [COLUMN], (floats(3, 5),)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_shapes_that_do_not_fit_are_refused(name: str) -> None:
    build, types, inputs = REFUSED[name]
    vm = machine(build, types)
    with pytest.raises(runtime.TVMError, match=r"do not fit|expected shape|rank|dimensions"):
        vm.run(*inputs)


def test_a_loop_over_growing_tensors() -> None:
    mod = relay.fromtext("""#[version = "0.0.5"]
    def @grow(%i: int32, %x: Tensor[(?, 2), float32], %row: Tensor[(1, 2), float32]) -> Tensor[(?, 2), float32] {
      if (equal(%i, 0)) { %x } else {
        let %pair = (%x, multiply(%row, cast(%i, dtype="float32")));
        @grow(subtract(%i, 1), concatenate(%pair), %row)
      }
    }
    def @main(%i: int32, %x: Tensor[(?, 2), float32], %row: Tensor[(1, 2), float32]) -> Tensor[(?, 2), float32] {
      @grow(%i, %x, %row)
    }""")
    vm = VirtualMachine(relay.vm.compile(mod, "llvm"), runtime.cpu())
    row = floats(1, 2)
    result = vm.run(5, np.zeros((0, 2), F32), row).numpy()
    np.testing.assert_allclose(result, np.concatenate([row * i for i in range(5, 0, -1)]), rtol=1e-6)


def test_a_branch_whose_results_differ_in_shape() -> None:
    x = relay.var("x", shape=(AnyDim(),))
    cond = relay.var("c", shape=(), dtype="bool")
    both = relay.If(cond, relay.concatenate([x, x], 0), x)
    params = [cond, x]
    vm = VirtualMachine(relay.vm.compile(relay.Function(params, relay.exp(both)), "llvm"), runtime.cpu())
    for taken in (True, False):
        expected = np.exp(np.tile(floats(3), 2 if taken else 1))
        np.testing.assert_allclose(vm.run(np.array(taken), floats(3)).numpy(), expected, rtol=1e-5)


def test_range_that_the_program_computes() -> None:
    scalars = [relay.var(name, shape=(), dtype="float32") for name in ("start", "stop", "step")]
    exe = relay.vm.compile(relay.Function(scalars, relay.arange(*scalars)), "llvm")
    ranges = VirtualMachine(exe, runtime.cpu())
    for start, stop, step in ((0, 5, 1), (3, 10, 0.5), (10, 0, -3), (5, 5, 1)):
        found = ranges.run(np.float32(start), np.float32(stop), np.float32(step)).numpy()
        np.testing.assert_allclose(found, np.arange(start, stop, step, "float32"))


@pytest.mark.parametrize("k", [1, 4, 9, 0])
def test_topk_of_a_number_that_the_program_computes(k: int) -> None:
    x, count = relay.var("x", relay.TensorType((relay.Any(), 9), "float32")), relay.var("k", shape=(), dtype="int32")
    exe = relay.vm.compile(relay.Function([x, count], relay.topk(x, count, ret_type="both").astuple()), "llvm")
    data = np.random.default_rng(0).permutation(18).reshape(2, 9).astype("float32")
    found = VirtualMachine(exe, runtime.cpu()).run(data, np.int32(k))
    order = np.argsort(-data, axis=1)[:, : k or 9]  # 0 takes all
    np.testing.assert_array_equal(found[0].numpy(), np.take_along_axis(data, order, 1))
    np.testing.assert_array_equal(found[1].numpy(), order)


def test_shapes_over_names_are_worked_out_once() -> None:
    rows = DimVar("rows", 0, 50)
    x, y = (relay.var(name, relay.TensorType((rows, 4), F32)) for name in "xy")
    body: Any = x
    for _ in range(3):
        body = relay.add(relay.nn.softmax(body), y)
    flag = relay.var("flag", relay.TensorType((), "bool"))
    for params, result in (([x, y], body), ([x, y, flag], relay.If(flag, body, relay.nn.softmax(relay.exp(body))))):
        exe = relay.vm.compile(IRModule.from_expr(relay.Function(params, result)), "llvm")
        code = exe.code
        kernels = [code.packed[i.fields[0]] for i in code.functions[0].instructions if i.opcode == Opcode.INVOKE_PACKED]
        assert sum(name.startswith("shape_func_") for name in kernels) <= len(params) - 1 < len(kernels)
        for count in (0, 1, 7, 50):
            given, more = floats(count, 4), floats(count, 4)
            wanted = given
            for _ in range(3):
                wanted = (softmax(wanted) + more) if count else wanted
            for taken in (True, False)[: len(params) - 1]:
                inputs = [given, more, np.array(taken)][: len(params)]
                expected = wanted if taken or not count else softmax(np.exp(wanted))
                found = VirtualMachine(exe, runtime.cpu()).run(*inputs).numpy()
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("groups, strides, dilation", [(1, (1, 1), (1, 1)), (2, (2, 1), (1, 1)), (32, (1, 3), (1, 2))])
def test_convolutions_of_named_extents_are_packed(
    groups: int, strides: tuple[int, int], dilation: tuple[int, int]
) -> None:
    rng = np.random.default_rng(0)
    x = relay.var("x", relay.TensorType((1, 32, DimVar("h"), DimVar("w")), "float32"))
    weight = rng.standard_normal((32, 32 // groups, 3, 3), "float32")
    attrs = {"padding": (1, 1), "strides": strides, "dilation": dilation, "groups": groups}
    func = relay.Function([x], relay.nn.relu(relay.nn.conv2d(x, relay.const(weight), **attrs)))
    with PassContext(opt_level=3, config={"relay.conv2d.winograd": "off"}):
        exe = relay.vm.compile(IRModule.from_expr(func), "llvm")
    assert any("conv2d_NCHWc" in kernel for kernel in exe.primitive_ops)
    machine = VirtualMachine(exe, runtime.cpu())
    for height, width in itertools.product((3, 4, 17), (3, 5, 7, 8, 9, 15, 16, 17, 23, 40)):
        value = rng.standard_normal((1, 32, height, width), "float32")
        tensors = torch.from_numpy(value), torch.from_numpy(weight)
        expected = torch.relu(torch.nn.functional.conv2d(*tensors, None, strides, 1, dilation, groups))
        np.testing.assert_allclose(machine.run(value).numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window, dilation", [(3, 1), (3, 2), (5, 1)])
def test_winograd_serves_images_of_named_extents(window: int, dilation: int) -> None:
    rng = np.random.default_rng(1)
    x = relay.var("x", relay.TensorType((1, 32, DimVar("h", 1), DimVar("w", 1)), "float32"))
    weight, pad = rng.standard_normal((32, 32, window, window), "float32"), window // 2 * dilation
    conv = relay.nn.conv2d(x, relay.const(weight), padding=(pad, pad), dilation=(dilation, dilation))
    with relay.build_config(opt_level=3):
        exe = relay.vm.compile(IRModule.from_expr(relay.Function([x], relay.nn.relu(conv))), "llvm")
    assert any("winograd" in kernel for kernel in exe.primitive_ops)
    machine = VirtualMachine(exe, runtime.cpu())
    for height, width in [(1, 1), (1, 7), (4, 4), (5, 9), (13, 17), (16, 32), (31, 3)]:
        value = rng.standard_normal((1, 32, height, width), "float32")
        tensors = torch.from_numpy(value), torch.from_numpy(weight)
        expected = torch.relu(torch.nn.functional.conv2d(*tensors, None, 1, pad, dilation))
        np.testing.assert_allclose(machine.run(value).numpy(), expected.numpy(), rtol=1e-3, atol=1e-3)


def test_extents_of_convolutions_are_one_expression_where_they_are_equal() -> None:
    x = relay.var("x", relay.TensorType((1, 16, DimVar("h", 8), DimVar("w", 8)), "float32"))
    weight = relay.const(np.ones((16, 16, 3, 3), "float32"))
    halved = relay.nn.conv2d(x, weight, padding=(1, 1), strides=(2, 2))
    inner = relay.nn.conv2d(halved, weight, padding=(1, 1))
    func = relay.Function([x], relay.add(inner, halved))
    mod = relay.transform.InferType()(IRModule.from_expr(func))
    assert mod["main"].body.checked_type == mod["main"].body.args[1].checked_type


@pytest.mark.parametrize("channels", [3, 8, 16])
def test_named_images_are_joined_and_packed(channels: int) -> None:
    def build(*parts: Any) -> Any:
        return relay.concatenate(relay.Tuple(parts), axis=1)

    h, w = DimVar("h"), DimVar("w")
    exe = machine(build, [((1, 1, h, w, c), F32) for c in [channels] * 3])
    packed = machine(lambda x: relay.layout_transform(x, "NCHW", f"NCHW{channels}c"), [((1, channels, h, w), F32)])
    for height, width in [(0, 3), (1, 1), (7, 5), (16, 16), (3, 17)]:
        parts = [floats(1, 1, height, width, channels) + k for k in range(3)]
        np.testing.assert_array_equal(exe.run(*parts).numpy(), np.concatenate(parts, 1))
        image = floats(1, channels, height, width)
        np.testing.assert_array_equal(packed.run(image).numpy(), image.transpose(0, 2, 3, 1)[:, None])


def test_weights_are_prepared_when_the_program_is_compiled() -> None:
    rng = np.random.default_rng(0)
    x = relay.var("x", relay.TensorType((DimVar("n"), 16, 14, 14), "float32"))
    weight = relay.const(rng.standard_normal((16, 16, 3, 3), "float32"))
    func = relay.Function([x], relay.nn.conv2d(x, weight, padding=(1, 1)))
    with relay.build_config(opt_level=3):
        exe = relay.vm.compile(IRModule.from_expr(func), "llvm")
    assert any("winograd" in kernel for kernel in exe.primitive_ops)
    assert not [kernel for kernel in exe.primitive_ops if kernel.startswith("fused_nn_contrib_conv2d_winograd_weight")]
    value = rng.standard_normal((3, 16, 14, 14), "float32")
    got = VirtualMachine(exe, runtime.cpu()).run(value).numpy()
    expected = relay.create_executor("debug", IRModule.from_expr(relay.Function([x], func.body))).evaluate()(value)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-4)


def test_the_report_tells_what_known_extents_would_make_faster() -> None:
    def report_of(h: Any, w: Any) -> Any:
        x = relay.var("x", relay.TensorType((DimVar("n"), 16, h, w), "float32"))
        weight = relay.const(np.ones((16, 16, 3, 3), "float32"))
        conv = relay.nn.conv2d(x, weight, padding=(1, 1), strides=(2, 2))
        with relay.build_config(opt_level=3):
            return relay.vm.compile(IRModule.from_expr(relay.Function([x], conv)), "llvm").build_report

    named = report_of(DimVar("h"), DimVar("w"))
    (line,) = named.specialization()
    assert line.startswith("convolutions and pools over them: 1 kernels;")
    assert line.endswith("--specialize n=NUMBER,h=NUMBER,w=NUMBER")
    assert not report_of(9, 9).specialization()  # the batch alone is open


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_borders_are_of_the_images_own_elements(mode: str) -> None:
    """numpy has none for an image without elements."""
    run = machine(lambda x: relay.nn.pad(x, ((0, 0), (4, 3)), pad_mode=mode), [((2, None), F32)])
    for extent in (1, 2, 3, 9):
        x = floats(2, extent)
        expected = np.pad(x, ((0, 0), (4, 3)), mode=mode)  # type: ignore[call-overload]
        np.testing.assert_array_equal(run.invoke("main", x).numpy(), expected)
    np.testing.assert_array_equal(run.invoke("main", floats(2, 0)).numpy(), np.zeros((2, 7), F32))


@pytest.mark.parametrize("block", [8, 17])
def test_packed_channels_of_images_of_unknown_extents_are_unpacked(block: int) -> None:
    types = [((1, 5, None, None, block), F32)]
    run = machine(lambda x: relay.layout_transform(x, f"NCHW{block}c", "NCHW"), types)
    for height, width in ((1, 1), (7, 33), (3, 16)):
        x = floats(1, 5, height, width, block)
        expected = x.transpose(0, 1, 4, 2, 3).reshape(1, -1, height, width)
        np.testing.assert_array_equal(run.invoke("main", x).numpy(), expected)


def test_joined_images_of_unknown_extents_are_packed_anew() -> None:
    height, width = DimVar("height", 1, 99), DimVar("width", 1, 99)
    parts = [relay.var(f"p{i}", relay.TensorType((1, 1, height, width, 8), F32)) for i in range(3)]
    body = relay.layout_transform(relay.concatenate(relay.Tuple(parts), 1), "NCHW8c", "NCHW24c")
    run = VirtualMachine(relay.vm.compile(IRModule.from_expr(relay.Function(parts, body)), "llvm"), runtime.cpu())
    for extents in ((1, 1), (5, 7), (4, 16)):
        arrays = [floats(1, 1, *extents, 8) + i for i in range(3)]
        expected = np.concatenate(arrays, 1).transpose(0, 2, 3, 1, 4).reshape(1, 1, *extents, 24)
        np.testing.assert_array_equal(run.invoke("main", *arrays).numpy(), expected)
