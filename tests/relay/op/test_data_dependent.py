"""argwhere and sparse_fill_empty_rows: results whose size depends on all elements, against numpy and lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.relay.transform import InferType

Array = np.ndarray[Any, Any]
KINDS = ["vm", "debug"]


def run(kind: str, params: list[Any], body: Any, inputs: list[Array]) -> Any:
    mod = IRModule.from_expr(relay.Function(params, body))
    return relay.create_executor(kind, mod=mod).evaluate()(*inputs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((5,), "bool"), ((3, 4), "int8"), ((1, 3, 1, 2), "float32"), ((0, 3), "int32"), ((1,), "bool")]
)
def test_argwhere(kind: str, known: bool, shape: tuple[int, ...], dtype: str) -> None:
    data = (np.random.default_rng(3).integers(-1, 2, shape)).astype(dtype)
    x = relay.var("x", shape=shape if known else [AnyDim() for _ in shape], dtype=dtype)
    result = run(kind, [x], relay.argwhere(x), [data])
    assert result.dtype == "int32"
    np.testing.assert_array_equal(result.numpy(), np.argwhere(data))


def test_argwhere_of_zeros_is_empty() -> None:
    x = relay.var("x", shape=(2, 2), dtype="int32")
    assert run("vm", [x], relay.argwhere(x), [np.zeros((2, 2), "int32")]).shape == (0, 2)


def test_argwhere_of_a_scalar_is_refused() -> None:
    x = relay.var("x", shape=())
    with pytest.raises(TypeInferenceError, match="condition should have a dimension"):
        InferType()(IRModule.from_expr(relay.Function([x], relay.argwhere(x))))


def filled(places: Array, values: Array, shape: Array, default: Array) -> tuple[list[Any], list[Any], list[bool]]:
    """Row by row."""
    rows, found, empty = [], [], []
    for row in range(int(shape[0])):
        own = [i for i, place in enumerate(places) if place[0] == row]
        empty.append(not own)
        rows += [list(places[i]) for i in own] or [[row] + [0] * (places.shape[1] - 1)]
        found += [values[i] for i in own] or [default[0]]
    return rows, found, empty


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("places", "shape"),
    [
        ([[0, 1], [0, 3], [2, 0], [3, 1]], [6, 6]),
        ([[1]], [1 + 1]),
        ([[0, 0, 0]], [1, 1, 1]),
        (np.zeros((0, 2)), [3, 4]),
        ([[2, 1], [2, 0], [2, 5]], [3, 7]),
    ],
)
def test_sparse_fill_empty_rows(kind: str, known: bool, places: Any, shape: Any) -> None:
    indices = np.array(places, "int64")
    inputs = [indices, np.arange(1, len(indices) + 1, dtype="float32"), np.array(shape, "int64"), np.float32([-5])]
    params = [
        relay.var(f"p{i}", shape=a.shape if known else [AnyDim()] * a.ndim, dtype=str(a.dtype))
        for i, a in enumerate(inputs)
    ]
    result = run(kind, params, relay.sparse_fill_empty_rows(*params), inputs)
    rows, values, empty = filled(*inputs)
    np.testing.assert_array_equal(result[0].numpy(), rows)
    np.testing.assert_array_equal(result[1].numpy(), values)
    np.testing.assert_array_equal(result[2].numpy(), empty)


def test_the_values_and_the_default_have_one_dtype() -> None:
    params = [
        relay.var("a", shape=(2, 2), dtype="int64"),
        relay.var("b", shape=(2,), dtype="float32"),
        relay.var("c", shape=(2,), dtype="int64"),
        relay.var("d", shape=(1,), dtype="int32"),
    ]
    with pytest.raises(TypeInferenceError, match="sparse_values and default_value"):
        InferType()(IRModule.from_expr(relay.Function(params, relay.sparse_fill_empty_rows(*params))))
