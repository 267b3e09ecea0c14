"""Operators on values that the program computes: run against numpy, and made static."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import relay, runtime
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.relay.transform import DynamicToStatic
from tilewright.runtime.error import TVMError
from tilewright.runtime.vm import VirtualMachine

Array = np.ndarray[Any, Any]
F32, I64 = "float32", "int64"


def ints(*values: int) -> Array:
    """A vector."""
    return np.array(values, I64)


def floats(*shape: int) -> Array:
    """The same numbers for the same shape."""
    return np.random.default_rng(5).standard_normal(shape).astype(F32)


def module(build: Callable[..., Any], types: list[tuple[Any, str]]) -> IRModule:
    """Main is the operator; None is a dimension that is not known."""
    shapes = [(tuple(AnyDim() if d is None else d for d in shape), dtype) for shape, dtype in types]
    params = [relay.var(f"p{i}", relay.TensorType(shape, dtype)) for i, (shape, dtype) in enumerate(shapes)]
    return IRModule.from_expr(relay.Function(params, build(*params)))


def sliced(a: Array, begin: Array, end: Array, strides: Array) -> Array:
    """As numpy does."""
    return a[tuple(slice(*map(int, bounds)) for bounds in zip(begin, end, strides, strict=True))]


def scattered(places: Array, shape: Array, values: Array) -> Array:
    """Values at their places, 5 elsewhere."""
    result = np.full(tuple(shape), 5, values.dtype)
    for place, value in zip(places, values, strict=True):
        result[tuple(place)] = value
    return result


COLUMN = ((None, 4), F32)
SLICES = [
    (ints(0, 1), ints(3, 4), ints(1, 1)), (ints(1, -1), ints(100, -100), ints(2, -2)),
    (ints(3, 0), ints(1, 6), ints(1, 1)), (ints(-2, 5), ints(-1, 1), ints(1, -1)),
    (ints(4, 5), ints(-100, 0), ints(-3, -5)),
]  # fmt: skip
CASES: dict[str, tuple[Callable[..., Any], list[tuple[Any, str]], list[tuple[Array, ...]], Callable[..., Array]]] = {
    "reshape": (
        relay.reshape, [COLUMN, ((2,), I64)],
        [(floats(4, 4), ints(2, 8)), (floats(4, 4), ints(-1, 2)), (floats(0, 4), ints(0, 4)),
         (floats(3, 4), ints(12, 1))],
        lambda a, s: a.reshape(s),
    ),
    "reshape, copied": (
        relay.reshape, [COLUMN, ((2,), I64)], [(floats(3, 4), ints(0, -1)), (floats(3, 4), ints(0, 4))],
        lambda a, s: a.reshape(3, 4),
    ),
    "reshape, joined": (
        relay.reshape, [((None, 3, 4), F32), ((2,), I64)],
        [(floats(2, 3, 4), ints(*s)) for s in [(-3, 4), (0, -3), (-3, -1), (-3, 0)]],
        lambda a, s: a.reshape((2, 12) if s[0] == 0 else (6, 4)),
    ),
    "broadcast_to": (
        relay.broadcast_to, [((1, 4), F32), ((3,), I64)],
        [(floats(1, 4), ints(*s)) for s in [(2, 3, 4), (1, 1, 4), (0, 1, 4)]],
        lambda a, s: np.broadcast_to(a, s),
    ),
    "zeros": (lambda s: relay.zeros(s, F32), [((2,), I64)], [(ints(2, 3),), (ints(0, 3),)], lambda s: np.zeros(s, F32)),
    "full": (
        lambda a, s: relay.full(a, s, F32), [((), F32), ((2,), I64)], [(np.array(3, F32), ints(2, 3))],
        lambda a, s: np.full(s, a, F32),
    ),
    "tile": (
        relay.tile, [((None, 2), F32), ((3,), I64)], [(floats(2, 2), ints(2, 1, 3)), (floats(3, 2), ints(0, 1, 1))],
        lambda a, s: np.tile(a, s),
    ),
    "tile by floats": (
        relay.tile, [((None, 2), F32), ((2,), F32)], [(floats(2, 2), np.array([2, 3], F32))],
        lambda a, s: np.tile(a, s.astype(I64)),
    ),
    "expand_dims": (
        relay.expand_dims, [COLUMN, ((), I64)],
        [(floats(3, 4), np.array(axis, I64)) for axis in (0, 1, 2, -1, -3)],
        lambda a, axis: np.expand_dims(a, int(axis)),
    ),
    "expand_dims by two": (
        lambda a, axis: relay.expand_dims(a, axis, num_newaxis=2), [COLUMN, ((1,), I64)],
        [(floats(n, 4), ints(axis)) for n in (0, 1, 3) for axis in (0, 1, 2)],
        lambda a, axis: a.reshape((*a.shape[: axis[0]], 1, 1, *a.shape[axis[0] :])),
    ),
    "squeeze": (
        relay.squeeze, [((None, 1, None, 1), F32), ((1,), I64)],
        [(floats(3, 1, 2, 1), ints(1)), (floats(3, 1, 2, 1), ints(-1)), (floats(1, 1, 2, 1), ints(0))],
        lambda a, s: np.squeeze(a, tuple(s)),
    ),
    "pad": (
        lambda a, w: relay.nn.pad(a, w, 1.5), [COLUMN, ((2, 2), I64)],
        [(floats(n, 4), np.array(w, I64)) for n in (0, 3) for w in ([[0, 0], [1, 2]], [[3, 0], [0, 1]])],
        lambda a, w: np.pad(a, w, constant_values=1.5),
    ),
    "one_hot": (
        lambda i, d: relay.one_hot(i, relay.const(2.0), relay.const(-1.0), d, 0, F32), [((None,), I64), ((), I64)],
        [(ints(0, 3, 1), np.array(4, I64)), (ints(0, 3, 1), np.array(2, I64))],
        lambda i, d: np.where(np.arange(d)[:, None] == i, np.float32(2), np.float32(-1)),
    ),
    "sparse_to_dense": (
        lambda places, shape, values: relay.sparse_to_dense(places, shape, values, relay.const(5.0)),
        [((None, 2), I64), ((2,), I64), ((None,), F32)],
        [(np.array([[0, 0], [2, 1], [1, 3]], I64), ints(3, 4), floats(3)),
         *[(np.zeros((0, 2), I64), shape, floats(0)) for shape in (ints(1, 7), ints(0, 3))]],
        scattered,
    ),
    "strided_slice": (
        relay.strided_slice, [((None, 6), F32), *[((2,), I64)] * 3], [(floats(5, 6), *s) for s in SLICES], sliced,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_in_the_machine_and_the_interpreter(name: str) -> None:
    build, types, data, reference = CASES[name]
    mod = module(build, types)
    machine = VirtualMachine(relay.vm.compile(mod, "llvm"), runtime.cpu())
    interpreted = relay.create_executor("debug", mod).evaluate()
    for inputs in data:
        expected = reference(*inputs)
        for found in (machine.run(*inputs), interpreted(*inputs)):
            assert found.shape == expected.shape
            np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (relay.reshape, (5, 2)), (relay.reshape, (5, -1)), (relay.reshape, (-2, -6)), (relay.broadcast_to, (6, 4)),
        (lambda a, shape: relay.sparse_to_dense(relay.cast(a, I64), shape, relay.const(1.0)), (-2, -3)),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_refused(build: Callable[..., Any], shape: tuple[int, ...]) -> None:
    machine = VirtualMachine(relay.vm.compile(module(build, [COLUMN, ((2,), I64)]), "llvm"), runtime.cpu())
    with pytest.raises(runtime.TVMError, match=r"negative|does not fit"):
        machine.run(floats(3, 4), ints(*shape))


def static(build: Callable[..., Any], types: list[tuple[Any, str]]) -> str:
    """The operator that is left in main's text."""
    return str(DynamicToStatic()(module(build, types))["main"].body.op.name)


def test_what_is_known_becomes_static() -> None:
    known = [((2, 6), F32), ((3, 4), F32)]
    assert static(lambda a, b: relay.reshape(a, relay.shape_of(b)), known) == "reshape"
    assert static(lambda a, b: relay.full(relay.sum(a), relay.shape_of(b), F32), known) == "full"
    assert static(lambda a, b: relay.tile(a, relay.shape_of(b) + relay.const(1)), known) == "tile"
    assert static(lambda a, b: relay.topk(a, relay.cast(relay.const(2.0), "int32"), ret_type="values"), known) == "topk"
    assert static(lambda a, b: relay.reshape(a, b), [((2, 6), F32), ((2,), I64)]) == "dyn.reshape"


def test_axes_that_are_not_cut_are_known() -> None:
    mod = module(relay.strided_slice, [((3, 4, 5), F32), ((1,), I64), ((1,), I64)])
    found = relay.transform.InferType()(mod)["main"].ret_type.shape
    assert isinstance(found[0], AnyDim) and tuple(map(int, found[1:])) == (4, 5)


def test_shapes_of_shapes() -> None:
    a, b = ((None, 4), F32), ((None, None), F32)
    mod = module(lambda a, b: relay.reshape(relay.nn.relu(a), relay.shape_of(b, I64)), [a, b])
    machine = VirtualMachine(relay.vm.compile(mod, "llvm"), runtime.cpu())
    for rows, like in [(4, (2, 8)), (3, (1, 12)), (0, (0, 5))]:
        expected = np.maximum(floats(rows, 4), 0).reshape(like)
        np.testing.assert_array_equal(machine.run(floats(rows, 4), floats(*like)).numpy(), expected)


@pytest.mark.parametrize("axis", [3, -4])
def test_a_dimension_outside_of_the_tensor_is_refused(axis: int) -> None:
    mod = module(relay.expand_dims, [COLUMN, ((), I64)])
    run = relay.create_executor("vm", mod=mod).evaluate()
    with pytest.raises(TVMError, match="does not fit its tensors"):
        run(floats(2, 4), np.array(axis, I64))
