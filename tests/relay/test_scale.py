"""Programs of a size that only a walk without recursion survives."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tiers import full

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.structural import structural_equal


def chain(length: int) -> tvm.IRModule:
    x = relay.var("x", shape=(1, 8))
    expr: relay.Expr = x
    for i in range(length):
        expr = relay.nn.relu(expr) if i % 2 else relay.add(expr, relay.const(0.5))
    return tvm.IRModule.from_expr(relay.Function([x], expr))


def nested_lets(depth: int) -> tvm.IRModule:
    x = relay.var("x", shape=(1, 8))
    names = [relay.var(f"v{i}") for i in range(depth)]
    values = [relay.add(previous, relay.const(1.0)) for previous in [x, *names[:-1]]]
    body: relay.Expr = names[-1]
    for name, value in zip(reversed(names), reversed(values), strict=True):
        body = relay.Let(name, value, body)
    return tvm.IRModule.from_expr(relay.Function([x], body))


def run(mod: tvm.IRModule, opt_level: int) -> np.ndarray:
    with tvm.transform.PassContext(opt_level=opt_level):
        lib = relay.build(mod, "llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.set_input("x", np.zeros((1, 8), "float32"))
    module.run()
    return module.get_output(0).numpy()


@pytest.mark.parametrize(("count", "opt_level"), [(2_000, 3), *full((10_000, 3), (10_000, 0), several=True)])
def test_thousands_of_operators_build_and_run(count: int, opt_level: int) -> None:
    np.testing.assert_array_equal(run(chain(count), opt_level), np.full((1, 8), count / 4, "float32"))


@pytest.mark.parametrize("opt_level", [3, *full(0)])
def test_two_thousand_nested_lets_build_and_run(opt_level: int) -> None:
    np.testing.assert_array_equal(run(nested_lets(2_000), opt_level), np.full((1, 8), 2000.0, "float32"))


@pytest.mark.parametrize("make", [lambda: chain(4_000), lambda: nested_lets(2_000)])
def test_large_programs_print_and_parse_back(make: object) -> None:
    mod = relay.transform.InferType()(make())  # type: ignore[operator]
    again = relay.transform.InferType()(tvm.parser.fromtext(mod.astext()))
    assert structural_equal(mod, again)
