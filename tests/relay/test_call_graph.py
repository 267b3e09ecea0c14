"""Who names whom in a module."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError


def module() -> tvm.IRModule:
    x = relay.var("x", shape=(2,))
    leaf, loop, ping, pong, main = (relay.GlobalVar(n) for n in ("leaf", "loop", "ping", "pong", "main"))
    functions = {
        leaf: relay.nn.relu(x), loop: loop(x), ping: pong(x), pong: ping(leaf(x)), main: leaf(loop(leaf(x))) + ping(x),
    }  # fmt: skip
    return tvm.IRModule({v: relay.Function([x], body) for v, body in functions.items()})


def test_counts_and_recursion() -> None:
    graph = relay.analysis.CallGraph(module())
    assert [graph.ref_count(n) for n in ("leaf", "loop", "ping", "pong", "main")] == [2, 2, 2, 1, 0]
    assert [graph.global_call_count(n) for n in ("leaf", "pong", "main")] == [0, 2, 3]
    assert graph.is_recursive("loop") and not graph.is_recursive("ping")
    assert graph.leads_to_itself("ping") and not graph.leads_to_itself("main")


def test_what_is_named_comes_before_those_that_name_it() -> None:
    graph = relay.analysis.CallGraph(module())
    order = graph.reached(["main"])
    assert sorted(order) == ["leaf", "loop", "main", "ping", "pong"] and order[-1] == "main"
    assert order.index("leaf") < order.index("pong") < order.index("ping")


def test_the_text_tells_references_and_calls() -> None:
    graph = relay.analysis.CallGraph(module())
    assert graph.print_var("loop") == "Call graph node: loop,  #refs = 2\n  call site: <loop> calls loop\n"
    assert str(graph).startswith("Call graph node: main,  #refs = 0")


def test_names_that_the_module_does_not_have_are_errors() -> None:
    graph = relay.analysis.CallGraph(module())
    with pytest.raises(TilewrightError, match="no function 'nobody'; it has leaf, loop"):
        graph.ref_count("nobody")
    with pytest.raises(TypeError, match="either a string or GlobalVar"):
        graph.ref_count(3)
    x = relay.var("x", shape=(2,))
    with pytest.raises(TilewrightError, match="no function 'missing'"):
        relay.analysis.CallGraph(tvm.IRModule.from_expr(relay.Function([x], relay.GlobalVar("missing")(x))))
