"""A table that is looked up and also packed for a dense layer is stored once."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.transform import FoldConstant, SharePackedWeights

ROWS, COLUMNS = 64, 6
TABLE = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype("float32")
IDS = np.array([[3, 0, 63], [64, 17, 3]])  # 64 is outside: clipped


def tied(table: np.ndarray, weight: np.ndarray, block: int = 16, axis: int = 0) -> tvm.IRModule:
    """A lookup in ``table``, and a dense layer with ``weight``, packed."""
    ids, data = relay.var("ids", shape=IDS.shape, dtype="int64"), relay.var("data", shape=(4, weight.shape[1]))
    packed = relay.layout_transform(relay.const(weight), "NC", f"NC{block}n")
    layer = relay.nn.contrib_dense_pack(data, packed, f"NC{block}n", units=len(weight))
    return tvm.IRModule.from_expr(
        relay.Function([ids, data], relay.Tuple([relay.take(relay.const(table), ids, axis=axis), layer]))
    )


def constants(module: tvm.IRModule) -> list[tuple[int, ...]]:
    """Shapes of the module's arrays."""
    nodes = relay.analysis.post_order_visit
    found: list[tuple[int, ...]] = []
    nodes(module["main"], lambda e: found.append(e.data.shape) if isinstance(e, relay.Constant) else None)
    return [shape for shape in found if shape]


def test_the_lookup_reads_the_packed_weight() -> None:
    module = SharePackedWeights()(FoldConstant()(tied(TABLE, TABLE)))
    assert constants(module) == [(4, 6, 16)]
    assert "layout_transform" in str(module)


@pytest.mark.parametrize(
    "module",
    [
        tied(TABLE, TABLE + 1),  # other values
        tied(TABLE, TABLE, axis=1),  # columns are looked up
        tied(TABLE[:48], TABLE),
        tied(TABLE.astype("float64"), TABLE),
    ],
)
def test_another_table_stays(module: tvm.IRModule) -> None:
    before = FoldConstant()(module)
    assert SharePackedWeights()(before)["main"] is before["main"]


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize(("dtype", "rows"), [("int32", 64), ("int64", 64), ("int64", 97)])
def test_the_answer_is_the_same_and_the_library_holds_the_table_once(opt_level: int, dtype: str, rows: int) -> None:
    table = np.random.default_rng(2).standard_normal((rows, COLUMNS)).astype("float32")
    ids, data = relay.var("ids", shape=IDS.shape, dtype=dtype), relay.var("data", shape=(4, COLUMNS))
    layer = relay.nn.dense(data, relay.var("weight", shape=table.shape), units=rows)
    looked_up = relay.take(relay.var("table", shape=table.shape), ids, axis=0)
    body = relay.Tuple([relay.exp(looked_up), layer])
    module = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    params = {"table": table, "weight": table.copy()}
    with tvm.transform.PassContext(opt_level=opt_level):
        library = relay.build(module, "llvm", params=params)
    stored = [p.shape for p in library.params.values()]
    assert len(stored) == 1
    assert len(stored[0]) == (3 if opt_level == 3 else 2)  # packed, or not
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    given = np.random.default_rng(1).standard_normal((4, COLUMNS)).astype("float32")
    executor.run(ids=IDS.astype(dtype), data=given)
    looked = np.exp(table[np.clip(IDS, 0, rows - 1)])
    np.testing.assert_allclose(executor.get_output(0).numpy(), looked, rtol=1e-5)
    np.testing.assert_allclose(executor.get_output(1).numpy(), given @ table.T, rtol=1e-4, atol=1e-5)


def test_the_virtual_machine_holds_the_table_once() -> None:
    """The batch has a name, so that the program is the machine's."""
    table = np.random.default_rng(2).standard_normal((512, 64)).astype("float32")
    count = tvm.ir.prim_expr.DimVar("count", 1, 9)
    ids = relay.var("ids", relay.TensorType((count,), "int64"))
    data = relay.var("data", shape=(4, 64))
    func = relay.Function([ids, data], relay.Tuple([relay.take(relay.const(table), ids, axis=0),
                                                    relay.nn.dense(data, relay.const(table))]))  # fmt: skip
    with tvm.transform.PassContext(opt_level=3):
        exe = relay.vm.compile(tvm.IRModule.from_expr(func), "llvm")
    assert len(bytes(exe.save()[0])) < 1.5 * table.nbytes
    places, values = np.array([511, 0, 17]), np.random.default_rng(3).standard_normal((4, 64)).astype("float32")
    rows, products = tvm.runtime.vm.VirtualMachine(exe, tvm.cpu()).run(places, values)
    np.testing.assert_array_equal(rows.numpy(), table[places])
    np.testing.assert_allclose(products.numpy(), values @ table.T, rtol=1e-4, atol=1e-4)
