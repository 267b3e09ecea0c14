"""Calls of every operator print and parse back to the same program."""

import pytest

import tilewright as tvm
from tests.relay.op import test_conv, test_elementwise, test_image, test_indexing, test_nn, test_reduce, test_transform
from tests.relay.op.harness import Case, typed
from tilewright import relay
from tilewright.ir.op import Op
from tilewright.ir.structural import assert_structural_equal
from tilewright.relay.text.parser import fromtext

TABLES = {
    "elementwise": test_elementwise.UNARY + test_elementwise.BINARY + test_elementwise.MADE,
    "reduce": test_reduce.CASES,
    "transform": test_transform.CASES,
    "indexing": test_indexing.CASES,
    "conv": test_conv.CONV2D + test_conv.PACKED + test_conv.OTHERS,
    "nn": test_nn.ALL,
    "image": test_image.CASES,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_calls_print_and_parse_back(table: list[Case]) -> None:
    for item in table:
        variables, expr = typed(item)
        mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(variables, expr)))
        text = mod.astext(show_meta_data=True)
        again = relay.transform.InferType()(fromtext(text))
        assert_structural_equal(again, mod)
        assert again.astext() == text, item.name


def test_every_declared_operator_says_what_it_means() -> None:
    declared = [Op.get(n) for n in Op.list_op_names() if Op.get(n).has_attr("OpDef")]
    assert len(declared) > 180
    lacking = [op.name for op in declared if not op.has_attr("FEvaluate")]
    assert lacking == []


def test_every_declared_operator_has_a_kernel_or_is_simplified_away() -> None:
    hooks = ("FTVMCompute", "FTVMStrategy", "FSimplifyInference")
    lacking = [
        name
        for name in Op.list_op_names()
        if Op.get(name).has_attr("OpDef") and not any(Op.get(name).has_attr(hook) for hook in hooks)
    ]
    assert lacking == []
