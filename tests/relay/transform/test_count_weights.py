"""CountWeights: what kernels know of the weights of their network."""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.relay.backend import te_compiler
from tilewright.relay.expr import Function
from tilewright.relay.transform.fusion.count_weights import CountWeights, constant_bytes
from tilewright.relay.visitor import post_order

TARGET = "llvm -mcpu=znver4 -num-cores=1"


def network(*sizes: int, shared: bool = False) -> tvm.IRModule:
    """Dense layers of one row; ``shared``: all with the first one's weights."""
    value = relay.var("x", shape=(1, sizes[0]))
    x, arrays = value, [np.ones((n, n), "float32") for n in sizes]
    constants = [relay.const(array) for array in arrays]
    for k, constant in enumerate(constants):
        value = relay.nn.dense(value, relay.Constant(constants[0].data) if shared else constant)
        value = relay.nn.softmax(value) if k % 2 else relay.tanh(value)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], value)))


def fused(mod: tvm.IRModule) -> tvm.IRModule:
    return relay.transform.LabelOps()(relay.transform.FuseOps(2)(mod))


def primitives(mod: tvm.IRModule) -> list[Function]:
    return [e for e in post_order(mod["main"]) if isinstance(e, Function) and e.attrs.get("Primitive")]


def test_every_kernel_knows_the_size_of_all_weights() -> None:
    mod = fused(network(8, 8, 8))
    counted = CountWeights()(mod)
    assert {func.attrs["network_weights"] for func in primitives(counted)} == {3 * 8 * 8 * 4}
    assert [func.attrs["hash"] for func in primitives(counted)] == [func.attrs["hash"] for func in primitives(mod)]
    assert all(func.checked_type_or_none is not None for func in primitives(counted))


def test_an_array_counts_once_and_nothing_is_noted_without_weights() -> None:
    assert constant_bytes(network(8, 8, 8, shared=True)) == 8 * 8 * 4
    x = relay.var("x", shape=(3,))
    plain = fused(relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.tanh(x)))))
    assert CountWeights()(plain) is plain


def test_a_kernel_of_a_larger_network_is_another_one() -> None:
    """Zen fetches weights past its last-level cache where the network's weights do not fit there."""
    small, large = fused(network(1024)), fused(network(1024))
    func = primitives(CountWeights()(small))[0]
    grown = func.with_attr("network_weights", 1 << 40)
    compiler = te_compiler.TECompiler()
    texts = [str(compiler.lower(f, TARGET).funcs) for f in (func, grown, primitives(large)[0])]
    assert ", 0, 3, 1, dtype=handle)" in texts[0] and texts[2].count("prefetch") == texts[0].count("prefetch")
    assert ", 0, 0, 1, dtype=handle)" in texts[1]
