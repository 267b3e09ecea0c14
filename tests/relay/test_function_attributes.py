"""Attributes of functions, and of operators for a while."""

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.testing.temp_op_attr import TempOpAttr


def test_a_number_of_tir_is_a_number() -> None:
    x = relay.var("x", shape=(2,))
    func = relay.Function([x], x)
    by_node = func.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    tvm.ir.assert_structural_equal(by_node, func.with_attr("Primitive", 1), map_free_vars=True)
    assert by_node.attrs["Primitive"] == 1


def test_an_operators_attribute_comes_back_after_a_while() -> None:
    exp, log = relay.op.get("exp"), relay.op.get("log")
    before = exp.get_attr("TOpPattern")
    with TempOpAttr("exp", "TOpPattern", 8), TempOpAttr("log", "made_up", 1):
        assert exp.get_attr("TOpPattern") == 8 and log.get_attr("made_up") == 1
    assert exp.get_attr("TOpPattern") == before and not log.has_attr("made_up")
    with pytest.raises(ZeroDivisionError), TempOpAttr("exp", "TOpPattern", 8):
        raise ZeroDivisionError
    assert exp.get_attr("TOpPattern") == before
