"""tree_leaves: compiled walks end where the definition's do."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import DimVar


def _forest(trees: int, depth: int, features: int, dtype: str) -> list[np.ndarray]:
    """Full trees of random tests, the deepest first; a leaf leads to itself."""
    rng = np.random.default_rng(trees)
    nodes, limits, roots = [], [], []
    for tree in range(trees):
        own, base = max(depth - tree % 3, 0), len(nodes)
        inner = 2**own - 1
        for i in range(2 ** (own + 1) - 1):
            here = base + i
            below = [base + 2 * i + 1, base + 2 * i + 2] if i < inner else [here, here]
            nodes.append([rng.integers(features), *below, below[rng.integers(2)]])
            limits.append(rng.normal())
        roots.append([base, own])
    return [np.array(nodes, "int32"), np.array(limits, dtype), np.array(roots, "int32")]


def _rows(count: int, features: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(count)
    rows = rng.normal(size=(count, features)).astype(dtype)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    return rows


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 5, 16, 37])
@pytest.mark.parametrize("trees", [1, 19])
def test_rows_end_where_the_definition_says(trees: int, count: int, dtype: str) -> None:
    tables, rows = _forest(trees, 5, 4, dtype), _rows(count, 4, dtype)
    x = relay.var("x", shape=rows.shape, dtype=dtype)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.op.tree_leaves(x, *map(relay.const, tables))))
    wanted = relay.create_executor("debug", mod).evaluate()(rows).numpy()
    np.testing.assert_array_equal(relay.create_executor("graph", mod).evaluate()(rows).numpy(), wanted)
    assert trees == 1 or len(np.unique(wanted)) > 1


def test_the_definition_walks_one_row_step_by_step() -> None:
    nodes, limits, roots = _forest(3, 4, 4, "float32")
    rows = _rows(6, 4, "float32")
    x = relay.var("x", shape=rows.shape)
    mod = tvm.IRModule.from_expr(
        relay.Function([x], relay.op.tree_leaves(x, *map(relay.const, (nodes, limits, roots))))
    )
    leaves = relay.create_executor("debug", mod).evaluate()(rows).numpy()
    for row, ends in zip(rows, leaves, strict=True):
        for (at, depth), end in zip(roots, ends, strict=True):
            for _ in range(depth):
                value = row[nodes[at, 0]]
                at = nodes[at, 3 if np.isnan(value) else 1 if value <= limits[at] else 2]
            assert at == end


def test_the_number_of_rows_may_be_known_at_run_time() -> None:
    tables, rows = _forest(7, 3, 4, "float32"), _rows(21, 4, "float32")
    x = relay.var("x", relay.TensorType((DimVar("rows"), 4), "float32"))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.op.tree_leaves(x, *map(relay.const, tables))))
    wanted = relay.create_executor("debug", mod).evaluate()(rows).numpy()
    np.testing.assert_array_equal(relay.create_executor("vm", mod).evaluate()(rows).numpy(), wanted)


def test_tables_of_other_shapes_are_refused() -> None:
    x, (nodes, limits, roots) = relay.var("x", shape=(2, 4)), _forest(1, 1, 4, "float32")
    call = relay.op.tree_leaves(x, *map(relay.const, (nodes[:, :3], limits, roots)))
    with pytest.raises(TilewrightError, match="nodes have 4 columns and roots 2, found"):
        relay.transform.InferType()(tvm.IRModule.from_expr(call))
