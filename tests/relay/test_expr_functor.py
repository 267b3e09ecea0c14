"""TVM's visitors: a node's method runs before anything below is visited, and visits that itself."""

from __future__ import annotations

import tilewright as tvm
from tilewright import relay
from tilewright.relay.op.annotation import compiler_begin, compiler_end

X = relay.var("x", shape=(2,))


class WholeGraph(relay.ExprMutator):
    """Gives a whole network to one compiler, as TVM's example of an annotator does."""

    def __init__(self) -> None:
        super().__init__()
        self.is_last = True

    def visit_call(self, call: relay.Call) -> relay.Expr:
        is_last, self.is_last = self.is_last, False
        args = [self.visit(arg) for arg in call.args]
        args = [compiler_begin(arg, "mine") if isinstance(arg, relay.Var) else arg for arg in args]
        made = relay.Call(call.op, args, call.attrs)
        return compiler_end(made, "mine") if is_last else made


def test_an_annotator_sees_the_last_call_first() -> None:
    y = relay.nn.relu(X)
    body = WholeGraph().visit(relay.add(y, relay.tanh(y)))
    partitioned = relay.transform.PartitionGraph()(tvm.IRModule.from_expr(relay.Function([X], body)))
    assert len(partitioned.get_global_vars()) == 2
    assert isinstance(partitioned["main"].body.op, relay.GlobalVar)


def test_a_visitor_goes_on_where_its_methods_do() -> None:
    class Names(relay.ExprVisitor):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def visit_call(self, call: relay.Call) -> None:
            self.names.append(call.op.name)
            if call.op.name != "tanh":
                super().visit_call(call)

    visitor = Names()
    visitor.visit(relay.Function([X], relay.add(relay.exp(X), relay.tanh(relay.nn.relu(X)))))
    assert visitor.names == ["add", "exp", "tanh"]


def test_deep_programs_are_visited() -> None:
    y: relay.Expr = X
    for _ in range(2_000):
        y = relay.Tuple([relay.TupleGetItem(relay.Tuple([relay.nn.relu(y)]), 0)])[0]
    mutator = WholeGraph()
    mutator.visit(y)
    assert len(mutator.memo_map) > 6_000
    assert relay.ExprMutator().visit(y) is y
