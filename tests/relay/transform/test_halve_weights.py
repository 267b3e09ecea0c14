"""HalveWeights: which weights are kept in half precision, what stays, and that answers are those of rounded weights."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.ir.span import SourceName, Span
from tilewright.ir.transform import PassContext
from tilewright.relay.transform import HalveWeights
from tilewright.relay.transform.precision import halve_weights
from tilewright.relay.transform.precision.halve_weights import precision_config
from tilewright.runtime.ndarray import numpy_view

_RNG = np.random.default_rng(7)
_FIRST, _SECOND = (_RNG.standard_normal((128, 64)).astype("float32") for _ in range(2))


def _named(call: relay.Call, name: str) -> relay.Call:
    return call.replace(span=Span(SourceName(name)))


def _network(second: np.ndarray = _SECOND) -> IRModule:
    """Two layers of which the last one is large, as is a language model's head."""
    x = relay.var("x", shape=(3, 64))
    hidden = _named(relay.nn.dense(x, relay.const(_FIRST)), "first")
    narrowed = relay.strided_slice(relay.nn.relu(hidden), [0, 0], [3, 64])
    return IRModule.from_expr(_named(relay.nn.dense(narrowed, relay.const(second)), "second"))


def _halved(mod: IRModule, config: Mapping[str, Any]) -> tuple[str, list[halve_weights.Halved]]:
    with PassContext(config=dict(config)), halve_weights.collecting() as found:
        return str(HalveWeights()(mod)["main"]), found


@pytest.mark.parametrize(("precision", "dtype"), [("fp16", "float16"), ("bf16", "bfloat16")])
def test_weights_become_half_and_products_stay_float32(precision: str, dtype: str) -> None:
    text, found = _halved(_network(), precision_config(precision))
    assert text.count('out_dtype="float32"') == 2
    assert [one.dtype for one in found] == [dtype, dtype]


def test_float32_changes_nothing() -> None:
    mod = relay.transform.InferType()(_network())
    assert HalveWeights()(mod)["main"] is mod["main"]


def test_a_kept_node_stays() -> None:
    _, found = _halved(_network(), precision_config("fp16", ["second"]))
    assert [(one.node, one.reason) for one in found] == [("first", ""), ("second", "--keep")]


def test_the_last_layer_stays_where_it_is_small() -> None:
    x = relay.var("x", shape=(3, 64))
    large = relay.const(np.ones((1024, 64), "float32"))
    body = relay.nn.dense(relay.nn.dense(x, large), relay.const(np.ones((4, 1024), "float32")))
    _, found = _halved(IRModule.from_expr(body), precision_config("bf16"))
    assert [one.reason for one in found] == ["", "the last layer"]


def test_weights_beyond_float16_stay() -> None:
    large = _SECOND.copy()
    large[0, 0] = 1e5
    for precision, reasons in (("fp16", ["", "beyond float16"]), ("bf16", ["", ""])):
        assert [one.reason for one in _halved(_network(large), precision_config(precision))[1]] == reasons


def test_infinities_and_not_a_number_do_not_keep_a_weight() -> None:
    odd = _SECOND.copy()
    odd[0, :3] = np.inf, -np.inf, np.nan
    assert [one.reason for one in _halved(_network(odd), precision_config("fp16"))[1]] == ["", ""]


def test_a_table_is_looked_up_in_half_and_shared_with_a_product() -> None:
    table = relay.const(np.ones((256, 64), "float32"))
    rows = relay.take(table, relay.var("i", shape=(3,), dtype="int32"), axis=0)
    with PassContext(config=precision_config("fp16")):
        body = HalveWeights()(IRModule.from_expr(relay.nn.dense(rows, table)))["main"].body
    assert body.args[0].op.name == "cast"
    assert body.args[0].args[0].args[0] is body.args[1]


@pytest.mark.parametrize("precision", ["fp16", "bf16", "mixed"])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64", "llvm -mcpu=haswell", "c"])
def test_answers_are_those_of_rounded_weights(precision: str, target: str) -> None:
    x = _RNG.standard_normal((3, 64)).astype("float32")
    wide = [weight.astype("float64") for weight in (_FIRST, _SECOND)]
    expected = np.maximum(x @ wide[0].T, 0)[:, :64] @ wide[1].T
    model = tilewright.compile(_network(), target=target, precision=precision)
    found = model(x=x)
    bound = {"fp16": 2e-3, "bf16": 1.2e-2, "mixed": 3e-3}[precision]
    assert np.abs(found - expected).max() <= bound * np.abs(expected).max()
    assert model.build_report.precision() == [
        f"2 of 2 large weights in {'bfloat16' if precision == 'bf16' else 'float16'}"
    ]
    assert model.build_report.parameter_bytes < 1.2 * (_FIRST.nbytes + _SECOND.nbytes) / 2


def test_special_numbers_of_weights_reach_the_result() -> None:
    odd = np.zeros((128, 64), "float32")
    odd[0, 0], odd[1, 0], odd[2, 0], odd[3, 0] = np.inf, -np.inf, np.nan, 6e-8
    mod = IRModule.from_expr(relay.nn.dense(relay.var("x", shape=(1, 64)), relay.const(odd)))
    x = np.zeros((1, 64), "float32")
    x[0, 0] = 2
    found = tilewright.compile(mod, precision="fp16")(x=x)[0]
    subnormal = 2 * np.float32(np.float16(6e-8))
    np.testing.assert_array_equal(found[:4], np.float32([np.inf, -np.inf, np.nan, subnormal]))


def test_an_unknown_precision_is_an_error() -> None:
    with pytest.raises(TilewrightError, match="fp16, bf16, mixed, auto, not 'fp8'"):
        tilewright.compile(_network(), precision="fp8")


def test_an_unknown_node_to_keep_is_an_error() -> None:
    with pytest.raises(TilewrightError, match=r"no node 'secund'.*second"):
        tilewright.compile(_network(), precision="fp16", keep=["secund"])


def test_keeping_a_node_of_a_float32_build_is_an_error() -> None:
    with pytest.raises(TilewrightError, match="--precision"):
        tilewright.compile(_network(), keep=["second"])


def test_auto_asks_the_processor() -> None:
    for processor, expected in (("haswell", []), ("cooperlake", ["bfloat16", "bfloat16"])):
        with tilewright.target.Target(f"llvm -mcpu={processor}"):
            assert [one.dtype for one in _halved(_network(), precision_config("auto"))[1]] == expected


def test_a_constant_is_rounded_to_nearest_even() -> None:
    odd = np.full((128, 64), 1 + 2.0**-8, "float32")  # halfway between two bfloat16
    with PassContext(config=precision_config("bf16")):
        body = HalveWeights()(_network(odd))["main"].body
    bits = numpy_view(body.args[1].data).view(np.uint16)
    assert np.unique(bits).tolist() == [0x3F80]
