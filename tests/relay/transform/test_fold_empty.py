"""FoldEmpty: results without elements are constants, at every opt level."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.expr import Constant
from tilewright.relay.transform import FoldEmpty, InferType

X = relay.var("x", shape=(0, 8))
EMPTY = {
    "dense": (X, lambda x: relay.nn.dense(x, relay.const(np.ones((3, 8), "float32"))), (0, 3)),
    "conv2d": (
        relay.var("x", shape=(0, 3, 8, 8)),
        lambda x: relay.nn.conv2d(x, relay.const(np.ones((4, 3, 3, 3), "float32")), kernel_size=(3, 3), channels=4),
        (0, 4, 6, 6),
    ),
    "space_to_depth": (relay.var("x", shape=(1, 0, 2, 2)), lambda x: relay.nn.space_to_depth(x, 2), (1, 0, 1, 1)),
    "softmax": (X, relay.nn.softmax, (0, 8)),
    "transpose": (X, relay.transpose, (8, 0)),
}


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("name", EMPTY)
def test_what_has_no_elements_compiles(name: str, opt_level: int) -> None:
    var, build, shape = EMPTY[name]
    mod = tvm.IRModule.from_expr(relay.Function([var], relay.exp(build(var))))
    with tvm.transform.PassContext(opt_level=opt_level):
        factory = relay.build(mod, "llvm")
    executor = graph_executor.GraphModule(factory["default"](tvm.cpu(0)))
    executor.run()
    assert executor.get_output(0).numpy().shape == shape


def test_before_and_after() -> None:
    func = relay.Function([X], relay.nn.dense(X, relay.const(np.ones((3, 8), "float32"))))
    body = FoldEmpty()(InferType()(tvm.IRModule.from_expr(func)))["main"].body
    assert isinstance(body, Constant) and body.data.shape == (0, 3)


def test_what_has_elements_stays() -> None:
    x = relay.var("x", shape=(2, 8))
    module = InferType()(tvm.IRModule.from_expr(relay.Function([x, X], relay.sum(X) + relay.nn.softmax(x))))
    assert FoldEmpty()(module)["main"] is module["main"]
