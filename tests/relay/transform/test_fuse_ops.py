"""What fused functions take as parameters."""

import tilewright as tvm
from tilewright import relay
from tilewright.ir.type import TupleType
from tilewright.relay.analysis import post_order_visit
from tilewright.relay.expr import Function


def test_a_field_of_a_tuple_is_passed_alone() -> None:
    x = relay.var("x", shape=(6, 4))
    parts = relay.split(x, 3, axis=0)
    left = relay.nn.relu(relay.add(parts[0], parts[2]))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.multiply(left, relay.exp(parts[1]))))
    fused = relay.transform.FuseOps(0)(relay.transform.InferType()(mod))
    functions: list[Function] = []
    post_order_visit(fused["main"].body, lambda e: functions.append(e) if isinstance(e, Function) else None)
    assert len(functions) == 5  # at level 0 every operator is a function of its own
    for func in functions:
        assert not any(isinstance(p.type_annotation, TupleType) for p in func.params)
    assert max(len(func.params) for func in functions) == 2
