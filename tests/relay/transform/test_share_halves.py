"""ShareHalves: what a convolution reads in bfloat16 is stored so once, for all readers."""

from __future__ import annotations

import numpy as np

from tilewright import relay
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, RelayExpr
from tilewright.relay.transform import InferType, ShareHalves
from tilewright.relay.visitor import post_order


def _conv(data: RelayExpr) -> RelayExpr:
    weight = relay.const(np.ones((64, 64, 1, 1)), "bfloat16")
    return relay.nn.conv2d(relay.cast(data, "bfloat16"), weight, channels=64, kernel_size=(1, 1), out_dtype="float32")


def _shared(body: RelayExpr) -> tuple[RelayExpr, list[Call]]:
    """Return the program after the pass, and its calls in order."""
    made = InferType()(ShareHalves()(InferType()(IRModule.from_expr(body))))["main"].body
    return made, [node for node in post_order(made) if isinstance(node, Call)]


def _image(height: int = 8) -> RelayExpr:
    return relay.var("x", shape=(1, 64, height, height))


def test_a_residual_reads_the_rounded_tensor() -> None:
    value = relay.nn.relu(_image())
    made, _ = _shared(relay.add(_conv(value), value))
    assert isinstance(made, Call)
    conv, widened = made.args
    assert isinstance(conv, Call)
    assert isinstance(widened, Call)
    assert widened.op.name == "cast"
    assert widened.args[0] is conv.args[0]


def test_pooling_and_slices_take_rounded_tensors() -> None:
    pooled = relay.nn.max_pool2d(relay.nn.relu(_image(16)), pool_size=(2, 2), strides=(2, 2))
    _, calls = _shared(_conv(relay.strided_slice(pooled, begin=[0, 0, 0, 0], end=[1, 64, 4, 4])))
    found = {call.op.name: call.checked_type.dtype for call in calls}
    assert found["nn.max_pool2d"] == found["strided_slice"] == "bfloat16"
    assert found["nn.relu"] == "float32"


def test_parts_that_are_joined_are_rounded_first() -> None:
    x = _image()
    parts = relay.concatenate([relay.nn.relu(x), relay.exp(x)], axis=2)
    _, calls = _shared(_conv(parts))
    assert next(c for c in calls if c.op.name == "concatenate").checked_type.dtype == "bfloat16"


def test_means_are_computed_in_float32() -> None:
    pooled = relay.nn.avg_pool2d(relay.nn.relu(_image()), pool_size=(2, 2), strides=(2, 2))
    _, calls = _shared(_conv(pooled))
    assert next(c for c in calls if c.op.name == "nn.avg_pool2d").checked_type.dtype == "float32"


def test_the_callers_result_is_not_rounded() -> None:
    value = relay.nn.relu(_image())
    mod = InferType()(IRModule.from_expr(relay.Tuple([_conv(value), value])))
    assert ShareHalves()(mod)["main"] is mod["main"]


def test_inputs_of_the_function_stay() -> None:
    x = _image()
    mod = InferType()(IRModule.from_expr(relay.add(_conv(x), x)))
    assert ShareHalves()(mod)["main"] is mod["main"]


def test_the_second_of_two_products_that_are_added_is_rounded() -> None:
    x = _image()
    first, second = _conv(relay.nn.relu(x)), _conv(relay.exp(x))
    made, _ = _shared(_conv(relay.nn.relu(relay.add(first, second))))
    assert isinstance(made, Call)
    added = next(node for node in post_order(made) if isinstance(node, Call) and node.op.name == "add")
    kept, widened = added.args
    assert isinstance(kept, Call)
    assert isinstance(widened, Call)
    assert kept.op.name == "nn.conv2d"
    assert widened.args[0].checked_type.dtype == "bfloat16"


def _dense(data: RelayExpr) -> RelayExpr:
    weight = relay.const(np.ones((32, 64)), "bfloat16")
    return relay.nn.dense(relay.cast(data, "bfloat16"), weight, out_dtype="float32")


def test_the_data_of_dense_layers_is_stored_rounded_through_moves_where_all_readers_round_it() -> None:
    moved = relay.reshape(relay.nn.relu(relay.var("x", shape=(2, 16, 64))), (32, 64))
    _, calls = _shared(relay.add(_dense(moved), _dense(moved)))
    assert next(c for c in calls if c.op.name == "reshape").checked_type.dtype == "bfloat16"
    casts = [c for c in calls if c.op.name == "cast"]
    assert [c.args[0].op.name for c in casts] == ["nn.relu"]


def test_a_sum_that_others_read_in_float32_stays() -> None:
    value = relay.nn.relu(relay.var("x", shape=(32, 64)))
    _, calls = _shared(relay.add(relay.sum(_dense(value)), relay.sum(value)))
    assert all(c.args[0].checked_type.dtype == "float32" for c in calls if c.op.name == "sum")


def test_the_result_of_attention_is_rounded_once() -> None:
    query, key, value = (relay.var(n, shape=(1, 1, 32, 64), dtype="bfloat16") for n in "qkv")
    attended = relay.cast(relay.nn.attention(query, key, value), "float32")
    _, calls = _shared(_dense(relay.reshape(attended, (32, 64))))
    assert [c.op.name for c in calls] == ["nn.attention", "reshape", "nn.dense"]


def test_tensors_that_are_stacked_are_rounded_first_and_parts_of_one_afterwards() -> None:
    x = relay.var("x", shape=(32, 32))
    _, calls = _shared(_dense(relay.reshape(relay.stack([relay.exp(x), relay.nn.relu(x)], axis=1), (32, 64))))
    assert next(c for c in calls if c.op.name == "stack").checked_type.dtype == "bfloat16"
    pair = relay.var("p", type_annotation=relay.TupleType([relay.TensorType((32, 32))] * 2))
    _, calls = _shared(_dense(relay.reshape(relay.stack(pair, axis=1), (32, 64))))
    assert next(c for c in calls if c.op.name == "stack").checked_type.dtype == "float32"
