"""CheckIndices: what indexes memory is checked, where that is not known to be needless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib.graph_executor import GraphModule
from tilewright.relay.op.transform.checks import CheckIndicesAttrs, check_indices
from tilewright.relay.transform import CheckIndices, InferType
from tilewright.runtime.error import TVMError

DATA = relay.var("data", shape=(4, 3))
PLACES = relay.var("places", shape=(2, 3), dtype="int64")
UPDATES = relay.var("updates", shape=(2, 3))
ROWS = relay.var("rows", shape=(6, 5))
_ZERO = relay.const(0, "int64")
IMAGES = relay.var("images", shape=(2, 3, 8, 8))


def _text(body: Any, **config: Any) -> str:
    module = InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))
    with tvm.transform.PassContext(config={f"relay.{k}": v for k, v in config.items()}):
        return str(CheckIndices()(module)["main"].body)


@pytest.mark.parametrize(
    "body",
    [
        relay.gather(DATA, 0, PLACES),
        relay.gather_nd(DATA, PLACES),
        relay.adv_index(relay.Tuple([DATA, PLACES])),
        relay.scatter(DATA, PLACES, UPDATES, 0),
        relay.scatter_add(DATA, PLACES, UPDATES, 0),
        relay.scatter_nd(DATA, PLACES, relay.sum(UPDATES, 0), "add"),
        relay.vision.roi_align(IMAGES, ROWS, (2, 2), 1.0),
        relay.vision.roi_pool(IMAGES, ROWS, (2, 2), 1.0),
    ],
    ids=lambda body: body.op.name,
)
def test_operators_that_index_memory_are_checked(body: Any) -> None:
    assert _text(body).count("check_indices(") == 1


def test_take_does_what_its_mode_says_of_indices_out_of_range() -> None:
    for mode in ("clip", "wrap", "fast"):
        assert "check_indices" not in _text(relay.take(DATA, PLACES, axis=0, mode=mode))


@pytest.mark.parametrize(
    "make",
    [
        lambda: relay.argmax(DATA, axis=0, keepdims=True),
        lambda: relay.topk(relay.transpose(DATA), 2, ret_type="indices", dtype="int64"),
        lambda: relay.clip(PLACES, 0, 3),
        lambda: relay.cast(relay.maximum(relay.minimum(PLACES, relay.const(3, "int64")), _ZERO), "int8"),
        lambda: relay.const(np.array([[0, 3, 1]])),
        lambda: check_indices(PLACES, CheckIndicesAttrs("index", (4,), from_end=True)),
    ],
    ids=["argmax", "topk", "clip", "minimum", "constant", "checked"],
)  # fmt: skip
def test_indices_that_are_known_to_be_in_range_are_not_checked_again(make: Callable[[], Any]) -> None:
    assert "gather: index" not in _text(relay.gather(DATA, 0, relay.strided_slice(make(), [0, 0], [1, 2])))


@pytest.mark.parametrize(
    "make",
    [
        lambda: relay.clip(PLACES, 0, 4),
        lambda: relay.clip(PLACES, -1, 3),
        lambda: relay.cast(relay.clip(relay.cast(PLACES, "float32"), 0, 3), "int32"),  # NaN is no position
        lambda: check_indices(PLACES, CheckIndicesAttrs("index", (5,), from_end=True)),
    ],
    ids=["too long", "negative", "float", "checked for more"],
)
def test_indices_that_may_be_out_of_range_are_checked(make: Callable[[], Any]) -> None:
    assert "gather: index" in _text(relay.gather(DATA, 0, make()))


def test_without_checks_indices_are_counted_from_the_front() -> None:
    checked = check_indices(PLACES, CheckIndicesAttrs("index", (4, 3), from_end=True))
    assert "check_indices" not in _text(relay.gather_nd(DATA, checked), unchecked_indices=True)


def test_a_program_in_relay_reports_its_operator_and_goes_on() -> None:
    places = relay.var("places", shape=(2, 3), dtype="int32")
    module = tvm.IRModule.from_expr(relay.Function([DATA, places], relay.gather(DATA, 0, places)))
    executor = GraphModule(relay.build(module, "llvm")["default"](tvm.cpu()))
    data = np.arange(12, dtype="float32").reshape(4, 3)
    for bad in (4, -5, 2**31 - 1):
        with pytest.raises(TVMError, match=f"gather: index {bad} is out of range: expected -4 to 3"):
            executor.run(data=data, places=np.array([[0, 1, 2], [3, bad, 0]], "int32"))
    executor.run(data=data, places=np.array([[0, -1, 2], [3, -4, 0]], "int32"))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), [[0, 10, 8], [9, 1, 2]])


def test_inputs_are_checked_together_and_each_has_its_message() -> None:
    inputs = [relay.var(f"i{k}", shape=(k + 1,), dtype="int64") for k in range(3)]
    tables = [relay.const(np.arange(6.0)[: 2 * (3 - k)].reshape(3 - k, 2)) for k in range(3)]
    rows = [
        relay.take(table, check_indices(i, CheckIndicesAttrs(f"table {k}:", (3 - k,), from_end=True)), 0, mode="fast")
        for k, (table, i) in enumerate(zip(tables, inputs, strict=True))
    ]
    module = tvm.IRModule.from_expr(relay.Function(inputs, relay.Tuple(rows)))
    factory = relay.build(module, "llvm")
    assert factory.get_graph_json().count("check_all_indices") == factory.get_graph_json().count("check_") > 0
    executor = GraphModule(factory["default"](tvm.cpu()))
    good = {"i0": np.array([-1]), "i1": np.array([1, -2]), "i2": np.array([0, 0, -1])}
    for k, extent in enumerate((3, 2, 1)):
        bad = good[f"i{k}"].copy()
        bad[-1] = extent
        with pytest.raises(TVMError, match=f"table {k}: {extent} is out of range: expected -{extent} to {extent - 1}"):
            executor.run(**{**good, f"i{k}": bad})
    executor.run(**good)
    for k in range(3):
        np.testing.assert_array_equal(executor.get_output(k).numpy(), tables[k].data.numpy()[good[f"i{k}"]])
