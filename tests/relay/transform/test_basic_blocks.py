"""ToBasicBlockNormalForm binds what several scopes use, and nothing else; the analysis finds what is not bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.analysis import Feature, check_basic_block_normal_form, detect_feature
from tilewright.relay.transform import ToBasicBlockNormalForm


def blocks(func: Any) -> Any:
    return ToBasicBlockNormalForm()(tvm.IRModule.from_expr(func))["main"]


def test_a_graph_in_one_scope_stays() -> None:
    x = relay.var("x", shape=(2,))
    y = relay.add(x, x)
    func = blocks(relay.Function([x], relay.multiply(y, y)))
    assert Feature.fLet not in detect_feature(func)
    assert check_basic_block_normal_form(func)


def nested_branches() -> Any:
    """y2 is used in both inner branches of the first branch, z2 in both outer ones."""
    c, y, z = relay.var("c", shape=(), dtype="bool"), relay.var("y", shape=()), relay.var("z", shape=())
    y2, z2 = relay.exp(y), relay.sin(z)
    first = relay.If(relay.less(y, z), relay.add(z2, y2), y2)
    return relay.Function([c, y, z], relay.If(c, first, z2))


def test_values_are_bound_where_all_their_uses_see_them() -> None:
    before = nested_branches()
    with pytest.raises(tvm.TVMError, match=r"not in basic block normal form: a Call is used in several scopes"):
        check_basic_block_normal_form(before)
    after = blocks(before)
    assert check_basic_block_normal_form(after)
    outer = after.body
    assert isinstance(outer, relay.Let) and outer.value.op.name == "sin"
    inner = outer.body.true_branch
    assert isinstance(inner, relay.Let) and inner.value.op.name == "exp"
    assert not isinstance(outer.body.false_branch, relay.Let)
    for taken, y, z in ((True, 1.0, 2.0), (True, 2.0, 1.0), (False, 1.0, 2.0)):
        arrays = [np.array(taken), np.float32(y), np.float32(z)]
        want, have = (relay.create_executor().evaluate(f)(*arrays).numpy() for f in (before, after))
        np.testing.assert_allclose(have, want)


def test_functions_are_scopes() -> None:
    x, y, z = (relay.var(n, shape=(2,)) for n in "xyz")
    shared = relay.add(x, x)
    both = relay.Tuple([relay.Function([y], relay.add(shared, y)), relay.Function([z], relay.multiply(shared, z))])
    after = blocks(relay.Function([x], both))
    assert isinstance(after.body, relay.Let) and isinstance(after.body.body, relay.Tuple)
    assert check_basic_block_normal_form(after)


def test_free_variables_in_two_scopes_have_none() -> None:
    c, loose = relay.var("c", shape=(), dtype="bool"), relay.var("loose", shape=(2,))
    with pytest.raises(tvm.TVMError, match="%loose is used in several scopes"):
        check_basic_block_normal_form(relay.If(c, loose, relay.add(loose, loose)))
