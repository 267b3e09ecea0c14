"""What holds for every operator: text, unknown dimensions, meaning and kernel."""

import pytest
from tests.relay.op import (
    test_bitserial,
    test_conv,
    test_detectors,
    test_einsum,
    test_elementwise,
    test_image,
    test_indexing,
    test_nbits,
    test_nn,
    test_queues_and_patches,
    test_random_numbers,
    test_reduce,
    test_sampling,
    test_sparse_matrices,
    test_strassen,
    test_transform,
    test_vision,
    test_winograd,
)
from tests.relay.op.harness import Case, typed

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.op import Op
from tilewright.ir.structural import assert_structural_equal
from tilewright.relay.text.parser import fromtext
from tilewright.relay.type_infer import infer_expr

TABLES = {
    "elementwise": test_elementwise.UNARY + test_elementwise.BINARY + test_elementwise.MADE,
    "reduce": test_reduce.CASES,
    "transform": test_transform.CASES,
    "indexing": test_indexing.CASES,
    "conv": test_conv.CONV2D + test_conv.PACKED + test_conv.PATCHES + test_conv.OTHERS,
    "nn": test_nn.ALL,
    "image": test_image.CASES,
    "vision": test_vision.CASES,
    "detectors": test_detectors.CASES,
    "einsum": test_einsum.CASES,
    "sparse": test_sparse_matrices.CASES,
    "bitserial": test_bitserial.CASES,
    "queues and patches": test_queues_and_patches.CASES,
    "random": test_random_numbers.CASES,
    "sampling": test_sampling.CASES,
    "winograd": test_winograd.CASES,
    "strassen": test_strassen.CASES,
    "few bits": test_nbits.CASES,
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


def declared_names() -> list[str]:
    """The operators that the package declares; other tests declare some of their own."""
    found = [n for n in Op.list_op_names() if Op.get(n).has_attr("OpDef")]
    return [n for n in found if Op.get(n).get_attr("OpDef").__module__.startswith("tilewright.")]


def test_every_declared_operator_says_what_it_means() -> None:
    declared = [Op.get(n) for n in declared_names()]
    assert len(declared) > 180
    # pieces of memory, and calls that fill them, are no values of numpy's; the virtual machine alone has them
    machine = {"memory.alloc_storage", "memory.alloc_tensor", "memory.kill", "vm.invoke_tvm_op", "vm.shape_func"}
    lacking = {op.name for op in declared if not op.has_attr("FEvaluate")}
    assert lacking == machine


def test_every_declared_operator_has_a_kernel_or_is_simplified_away() -> None:
    hooks = ("FTVMCompute", "FTVMStrategy", "FSimplifyInference")
    computing = [op for op in map(Op.get, declared_names()) if not op.get_attr("TNonComputational")]
    lacking = [op.name for op in computing if not any(op.has_attr(hook) for hook in hooks)]
    # these run in the interpreter, where DynamicToStatic finds values known, or where WriteOutDynamic writes them out
    waiting = ["argwhere", "dyn.topk", "sparse_fill_empty_rows"]
    assert sorted(lacking) == waiting


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_unknown_dimensions_are_carried_and_never_contradict_known_ones(table: list[Case]) -> None:
    for item in table:
        variables = []
        for k, array in enumerate(item.inputs):
            shape = [relay.Any(), *array.shape[1:]] if array.ndim else []
            variables.append(relay.var(f"x{k}", shape=shape, dtype=str(array.dtype)))
        expr = item.build(*variables)
        try:
            found = infer_expr(expr.astuple() if isinstance(expr, relay.TupleWrapper) else expr).checked_type
        except TypeInferenceError as error:  # the number of the result's dimensions depends on the unknown
            assert "not known" in str(error), item.name
            continue
        fields = found.fields if isinstance(found, relay.TupleType) else (found,)
        for type_, want in zip(fields, item.results, strict=True):
            assert len(type_.shape) == want.ndim, item.name
            for dim, extent in zip(type_.shape, want.shape, strict=True):
                assert isinstance(dim, relay.Any) or int(dim) == extent, item.name
