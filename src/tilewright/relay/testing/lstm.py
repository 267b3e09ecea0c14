"""An LSTM, unrolled (Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997)."""

from __future__ import annotations

from tilewright import relay
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.type import TensorType, TupleType
from tilewright.relay.expr import Call, Function, Tuple, TupleGetItem, Var
from tilewright.relay.scope_builder import ScopeBuilder
from tilewright.relay.testing import layers
from tilewright.relay.testing.init import create_workload
from tilewright.runtime.ndarray import NDArray


def lstm_cell(num_hidden: int, batch_size: int = 1, dtype: str = "float32", name: str = "") -> Function:
    """Return one step: a function of inputs, states (hidden, cell), and the weights and biases of both projections.

    Its result is (output, (hidden, cell)). ``name`` is a prefix of the names of layers.
    """
    builder = ScopeBuilder()
    vector = TensorType((batch_size, num_hidden), dtype)
    weight = TensorType((4 * num_hidden, num_hidden), dtype)
    bias = TensorType((4 * num_hidden,), dtype)
    gates_type = TensorType((batch_size, 4 * num_hidden), dtype)
    state = TupleType([vector, vector])
    result_type = TupleType([vector, state])
    inputs, states = Var("inputs", vector), Var("states", state)
    i2h_weight, i2h_bias = Var("i2h_weight", weight), Var("i2h_bias", bias)
    h2h_weight, h2h_bias = Var("h2h_weight", weight), Var("h2h_bias", bias)

    i2h = builder.let(
        ("i2h", gates_type), layers.dense_add_bias(inputs, i2h_weight, i2h_bias, 4 * num_hidden, name=f"{name}i2h")
    )
    hidden = TupleGetItem(states, 0)
    h2h = builder.let(
        ("h2h", gates_type), layers.dense_add_bias(hidden, h2h_weight, h2h_bias, 4 * num_hidden, name=f"{name}h2h")
    )
    gates = builder.let(("gates", gates_type), relay.add(i2h, h2h))
    parts = builder.let(
        ("slice_gates", TupleType([vector] * 4)), relay.split(gates, indices_or_sections=4, axis=1).astuple()
    )
    in_gate = builder.let(("in_gate", vector), relay.sigmoid(TupleGetItem(parts, 0)))
    forget_gate = builder.let(("forget_gate", vector), relay.sigmoid(TupleGetItem(parts, 1)))
    in_transform = builder.let(("in_transform", vector), relay.tanh(TupleGetItem(parts, 2)))
    out_gate = builder.let(("out_gate", vector), relay.sigmoid(TupleGetItem(parts, 3)))
    kept = relay.multiply(forget_gate, TupleGetItem(states, 1))
    next_c = builder.let(("next_c", vector), relay.add(kept, relay.multiply(in_gate, in_transform)))
    next_h = builder.let(("next_h", vector), relay.multiply(out_gate, relay.tanh(next_c)))
    result = builder.let(("ret", result_type), Tuple([next_h, Tuple([next_h, next_c])]))
    builder.ret(result)
    params = [inputs, states, i2h_weight, i2h_bias, h2h_weight, h2h_bias]
    return Function(params, builder.get(), result_type)


def get_net(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Function:
    """Return the cell applied ``iterations`` times, each with its own weights; the result is the last output.

    Args:
        iterations: steps.
        num_hidden: size of input, output and state.
        batch_size: sequences at once.
        dtype: element type.
    """
    builder = ScopeBuilder()
    vector = TensorType((batch_size, num_hidden), dtype)
    weight = TensorType((4 * num_hidden, num_hidden), dtype)
    bias = TensorType((4 * num_hidden,), dtype)
    state = TupleType([vector, vector])
    zeros = builder.let(("zeros", vector), relay.zeros((batch_size, num_hidden), dtype))
    states: RelayExpr = builder.let(("init_states", state), Tuple([zeros, zeros]))
    out: RelayExpr = zeros
    for i in range(iterations):
        arguments = [
            Var("data", vector), states, Var(f"i2h_{i}_weight", weight), Var(f"i2h_{i}_bias", bias),
            Var(f"h2h_{i}_weight", weight), Var(f"h2h_{i}_bias", bias),
        ]  # fmt: skip
        cell = lstm_cell(num_hidden, batch_size, dtype, f"lstm_{i}")
        step = builder.let((f"call_{i}", TupleType([vector, state])), Call(cell, arguments))
        out = builder.let((f"out_{i}", vector), TupleGetItem(step, 0))
        states = builder.let((f"states_{i}", state), TupleGetItem(step, 1))
    builder.ret(out)
    body = builder.get()
    return Function(relay.analysis.free_vars(body), body, vector)


def get_workload(
    iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32"
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a typed module, and its parameters; arguments as ``get_net``."""
    return create_workload(get_net(iterations, num_hidden, batch_size, dtype))
