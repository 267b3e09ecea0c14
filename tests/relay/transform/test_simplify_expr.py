"""SimplifyExpr: its table by text, and that chains of axis moves keep what they compute."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.relay.transform.texts import check, parse

import tilewright as tvm
from tilewright import relay
from tilewright.contrib.graph_executor import GraphModule
from tilewright.relay import transform
from tilewright.relay.interpreter import interpret


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("transpose(transpose(%x, axes=[1, 0]), axes=[1, 0])", "%x"),
        ("transpose(transpose(%x))", "%x"),
        ("transpose(%x, axes=[0, -1])", "%x"),
        ("reshape(reshape(%x, newshape=[6]), newshape=[3, 2])", "reshape(%x, newshape=[3, 2])"),
        (
            "contrib_reverse_reshape(reshape(%x, newshape=[6]), newshape=[3, -1])",
            "reshape(%x, newshape=[3, 2])",
        ),
        ('cast(%x, dtype="float32")', "%x"),
        ("cast_like(%x, %y)", "%x"),
        ("cast_like(%x, %i)", 'cast(%x, dtype="int8")'),
        ('cast(cast(%i, dtype="int32"), dtype="int8")', "%i"),
        ('cast(cast(%i, dtype="int32"), dtype="int16")', 'cast(%i, dtype="int16")'),
        ('cast(cast(%x, dtype="int32"), dtype="float32")', 'cast(cast(%x, dtype="int32"), dtype="float32")'),
        ('cast(cast(%i, dtype="float32"), dtype="uint8")', 'cast(cast(%i, dtype="float32"), dtype="uint8")'),
        ("add(%x, 0f)", "%x"),
        ("multiply(1f, %x)", "%x"),
        ("subtract(0f, %x)", "subtract(0f, %x)"),
        ("add(zeros_like(%x), %x)", "%x"),
        ("subtract(%x, zeros_like(%x))", "%x"),
        ('divide(%x, ones(shape=[3], dtype="float32"))', "%x"),
        ("multiply(%x, full_like(%x, 2f))", "multiply(%x, 2f)"),
        (
            'add(%x, zeros(shape=[4, 2, 3], dtype="float32"))',
            'add(%x, zeros(shape=[4, 2, 3], dtype="float32"))',
        ),
        ("zeros_like(%y)", 'zeros(shape=[3, 2], dtype="float32")'),
        ("ones_like(%i)", 'ones(shape=[2, 3], dtype="int8")'),
        ("full_like(%i, 2f)", 'full(2f, shape=[2, 3], dtype="int8")'),
        ("reshape_like(%x, %y)", "reshape(%x, newshape=[3, 2])"),
        ("reshape_like(%z, %y, lhs_begin=1)", "reshape(%z, newshape=[4, 3, 2])"),
        ("broadcast_to_like(%x, %z)", "broadcast_to(%x, shape=[4, 2, 3])"),
        ('layout_transform(layout_transform(%x, src_layout="NC", dst_layout="CN"), src_layout="CN", dst_layout="NC")',
         "%x"),
        ('layout_transform(transpose(%x, axes=[1, 0]), src_layout="CN", dst_layout="NC3c")',
         'layout_transform(%x, src_layout="NC", dst_layout="NC3c")'),
        ('transpose(layout_transform(%x, src_layout="NC", dst_layout="NC3c"), axes=[1, 0, 2])',
         'layout_transform(%x, src_layout="NC", dst_layout="CN3c")'),
        ('layout_transform(layout_transform(%x, src_layout="NC", dst_layout="NC3c"), src_layout="NC3c", '
         'dst_layout="NC")', "%x"),
    ],
)  # fmt: skip
def test_the_table(before: str, after: str) -> None:
    header = (
        "def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(3, 2), float32], %z: Tensor[(4, 2, 3), float32], "
        "%i: Tensor[(2, 3), int8]) {{ {} }}"
    )
    check(transform.SimplifyExpr(), header.format(before), header.format(after))
    all_is_typed(transform.SimplifyExpr()(parse(header.format(before))))


def all_is_typed(mod: tvm.IRModule) -> None:
    """Passes that follow ask every operand for its type."""
    nodes: list[relay.Expr] = []
    relay.analysis.post_order_visit(mod["main"], nodes.append)
    assert [n for n in nodes if n.checked_type_or_none is None and not isinstance(n, tvm.ir.Op)] == []


def test_collapse_sum_like_takes_the_shape_alone() -> None:
    x, like = relay.var("x", shape=(3, 1, 3)), relay.var("like", shape=(3,))
    mod = tvm.IRModule.from_expr(relay.Function([x, like], relay.collapse_sum_like(x, like)))
    body = transform.SimplifyExpr()(mod)["main"].body
    assert body.op.name == "collapse_sum_to"
    all_is_typed(transform.SimplifyExpr()(mod))
    lib = relay.build(mod, "llvm")
    data = np.arange(9, dtype="float32").reshape(3, 1, 3)
    module = GraphModule(lib["default"](tvm.cpu()))
    module.run(x=data, like=np.zeros(3, "float32"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), data.sum((0, 1)))
    assert body.args[0].name_hint == "x"


MOVES = [
    lambda d: relay.transpose(d, axes=[0, 2, 3, 1]),
    lambda d: relay.transpose(d),
    lambda d: relay.layout_transform(d, "NCHW", "NHWC"),
    lambda d: relay.layout_transform(d, "NHWC", "CHWN"),
    lambda d: relay.layout_transform(d, "NCHW", "NCHW4c"),
    lambda d: relay.layout_transform(d, "NHWC", "NCHW2c"),
    lambda d: relay.layout_transform(d, "NCHW4c", "NCHW"),
    lambda d: relay.layout_transform(d, "NCHW2c", "NHWC"),
    lambda d: relay.layout_transform(d, "NCHW4c", "NCHW2c"),
    lambda d: relay.transpose(d, axes=[0, 2, 3, 1, 4]),
]


@pytest.mark.parametrize("shape", [(1, 4, 3, 2), (1, 3, 5, 7), (2, 8, 1, 1)])
def test_chains_of_axis_moves_keep_what_they_compute(shape: tuple[int, ...]) -> None:
    """All chains of two and three moves that type-check, also those that pad channels."""
    data = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    shortened = 0
    for moves in itertools.chain(itertools.product(MOVES, repeat=2), itertools.product(MOVES, repeat=3)):
        x = relay.var("x", shape=shape)
        body = x
        for move in moves:
            body = move(body)
        try:
            before = transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))
        except tvm.TVMError:
            continue
        after = transform.SimplifyExpr()(before)
        assert after["main"].checked_type == before["main"].checked_type
        np.testing.assert_array_equal(interpret(after, [data]), interpret(before, [data]))
        shortened += str(after) != str(before)
    assert shortened > 20


def test_what_is_dynamic_stays() -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    func = relay.Function([x], relay.reshape(relay.reshape(x, (-1,)), (3, -1)))
    mod = transform.InferType()(tvm.IRModule.from_expr(func))
    assert tvm.ir.structural_equal(transform.SimplifyExpr()(mod), mod)


@pytest.mark.parametrize("spread", ["repeat", "broadcast_to"])
@pytest.mark.parametrize(("axis", "newshape"), [(2, (1, 6, 5, 4)), (1, (3, 2, 5, 4)), (2, (1, 2, 15, 4))])
def test_heads_that_are_repeated_by_a_new_axis(spread: str, axis: int, newshape: tuple[int, ...]) -> None:
    """Only where the reshape joins the new axis and the one before it."""
    x = relay.var("x", shape=(1, 2, 5, 4))
    apart = relay.expand_dims(x, axis)
    shape = (*(1, 2, 5, 4)[:axis], 3, *(1, 2, 5, 4)[axis:])
    wide = relay.repeat(apart, 3, axis) if spread == "repeat" else relay.broadcast_to(apart, shape)
    before = transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.reshape(wide, newshape))))
    after = transform.SimplifyExpr()(before)
    data = np.arange(40, dtype="float32").reshape(1, 2, 5, 4)
    np.testing.assert_array_equal(interpret(after, [data]), interpret(before, [data]))
    assert ("expand_dims" not in str(after)) == (newshape != (1, 2, 15, 4))
