"""Small things that programs written for TVM 0.8 use under names, and with parameters, of TVM's."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, tir, topi
from tilewright.ir.errors import TilewrightError
from tilewright.relay.op import op_attrs


def test_parameters_have_tvms_names() -> None:
    x = tir.Var("x")
    analyzer = tvm.arith.Analyzer()
    analyzer.bind(var=x, expr=tvm.ir.Range(0, 4))
    with analyzer.constraint_scope(constraint=x > 2):
        assert analyzer.simplify(x).value == 3
    assert tvm.ir.load_json(json_str=tvm.ir.save_json(x)).name == "x"
    func = tir.PrimFunc([x], tir.Evaluate(0)).with_attr(attr_key_or_dict="a", attr_value=7)
    assert func.attrs["a"] == 7
    assert tvm.nd.empty((2,)).copyfrom(source_array=np.ones(2, "float32")).numpy().sum() == 2
    assert tvm.ir.Op.get(op_name="nn.conv2d").name == "nn.conv2d"
    mod = tvm.IRModule()
    mod.import_from_std(file_to_import="prelude.rly")
    assert [v.name_hint for v in mod.get_global_type_vars()] == ["Option", "List", "Tree"]
    assert relay.analysis.list_op_freqs(mod=mod)["add"] > 0
    assert relay.analysis.check_kind(t=relay.TensorType((2,))) == relay.TypeKind.Type


def test_names_of_types() -> None:
    assert str(tvm.DataType("float32x4")) == "float32x4"
    assert tvm.DataTypeCode.FLOAT == 2
    assert tvm.ir.CallingConv.DEVICE_KERNEL_LAUNCH == 2
    assert isinstance(tir.Var("x") + 1, tir.expr.BinaryOpExpr)
    assert isinstance(tir.Var("x") < 1, tir.expr.CmpExpr)
    assert relay.ty.ShapeVar("s").kind == relay.TypeKind.ShapeVar
    assert relay.ty.is_dynamic(relay.TensorType((relay.Any(),)))
    assert not relay.ty.is_dynamic(relay.TensorType((3,)))
    call = relay.nn.dense(relay.var("x", shape=(1, 2)), relay.var("w", shape=(3, 2)))
    assert isinstance(call.attrs, op_attrs.DenseAttrs)
    with pytest.raises(AttributeError, match="NoSuchAttrs"):
        _ = op_attrs.NoSuchAttrs


def test_arithmetic_by_name() -> None:
    x = tir.Var("x", "float32")
    generic = tir.generic
    value = generic.divide(generic.subtract(generic.multiply(generic.add(x, 1.0), 2.0), x), 4.0)
    found = tir.stmt_functor.substitute(value, {x: tir.const(3.0, "float32")})
    assert tvm.arith.Analyzer().simplify(found).value == 1.25
    assert generic.cast(x, "int32").dtype == "int32"
    assert tvm.runtime.const(3, "int64").dtype == "int64"
    assert tvm.runtime.convert_to_object([1])[0].value == 1


def test_padding_on_both_sides() -> None:
    from tilewright.relay.op.nn import utils

    assert utils.get_pad_tuple1d(3) == (3, 3)
    assert utils.get_pad_tuple2d((1, 2)) == (1, 2, 1, 2)
    assert utils.get_pad_tuple3d((1, 2, 3, 4, 5, 6)) == (1, 2, 3, 4, 5, 6)
    with pytest.raises(TilewrightError, match="1, 2 or 4 numbers, got 3"):
        utils.get_pad_tuple2d((1, 2, 3))


def test_tag_scopes_can_be_asked_for() -> None:
    assert te.tag.TagScope.get_current() is None
    with te.tag_scope("conv"):
        current = te.tag.TagScope.get_current()
        assert current is not None
        assert current.tag == "conv"


def test_helpers_of_topi() -> None:
    assert [topi.utils.get_max_power2_factor(n) for n in (1, 12, 7, 64)] == [1, 4, 1, 64]
    assert topi.utils.get_max_power2_factor(64, 16) == 16
    assert topi.utils.ncw_xc_layout("NCW16c")
    assert not topi.utils.ncw_xc_layout("NCHW16c")
    assert topi.utils.ncw_pack_layout("NCW1n16c")
    vector = topi.utils.const_vector(np.arange(5, dtype="float32"))
    out = te.compute((10,), lambda i: vector[i % 5] * 2.0)
    built = tvm.build(te.create_schedule(out.op), [out], "llvm")
    result = tvm.nd.empty((10,))
    built(result)
    np.testing.assert_array_equal(result.numpy(), np.tile(np.arange(5), 2) * 2)


def test_metal_takes_31_buffers() -> None:
    assert tvm.target.Target("metal").max_function_args == 31


def test_a_tuple_has_no_dtype() -> None:
    with pytest.raises(TypeError, match="no dtype"):
        relay.split(relay.var("x", shape=(4,)), 2).astype("int32")


def tangent(name: str, dtype: str) -> tvm.IRModule:
    a = te.placeholder((4,), dtype, "a")
    b = te.compute((4,), lambda i: te.tan(a[i]), name="b")
    return tvm.lower(te.create_schedule(b.op), [a, b], name=name)


def test_a_kernel_named_as_what_it_calls_is_refused() -> None:
    with pytest.raises(TilewrightError, match="the function tan calls a function of the same name"):
        tvm.build(tangent("tan", "float64"), target="llvm")


def test_a_kernel_named_as_what_another_calls_is_refused() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    mod = tangent("other", "float64")
    mod.update(tvm.lower(te.create_schedule(b.op), [a, b], name="tan"))
    with pytest.raises(TilewrightError, match="other calls tan of the C library"):
        tvm.build(mod, target="llvm")


def test_arithmetic_is_by_tvms_parameters() -> None:
    x = tir.Var("x", "float32")
    generic = tir.generic
    assert generic.add(lhs=x, rhs=1.0, span=None) is x + 1.0
    assert generic.subtract(lhs=x, rhs=1.0) is x - 1.0
    assert generic.multiply(lhs=x, rhs=2.0) is x * 2.0
    assert tir.fmod(x=x, y=2.0).op.name == "tir.fmod"
    assert tvm.target.cuda("v100", ["-arch=sm_70"]).attrs["arch"] == "sm_70"


def test_a_lowered_module_is_built_by_the_code_generators_name() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    built = tvm.target.codegen.build_module(tvm.lower(te.create_schedule(b.op), [a, b]), "llvm")
    result = tvm.nd.empty((4,))
    built(tvm.nd.array(np.zeros(4, "float32")), result)
    assert result.numpy().tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("coef", "lower", "equal", "upper", "first", "last"),
    [
        (1, [0, 3], [], [9, 7], 3, 7),
        (2, [1], [], [8], 1, 4),
        (3, [-4], [], [10], -1, 3),
        (1, [0], [5], [9], 5, 5),
        (4, [], [8], [], 2, 2),
    ],
)
def test_the_best_range_of_bounds(
    coef: int, lower: list[int], equal: list[int], upper: list[int], first: int, last: int
) -> None:
    found = tvm.arith.IntGroupBounds(coef, lower, equal, upper).find_best_range()
    assert (found.min.value, found.min.value + found.extent.value - 1) == (first, last)
    holds = [v for v in range(-50, 50) if all(coef * v >= b for b in lower) and all(coef * v <= b for b in upper)]
    assert {first, last} <= set(holds)


def test_bounds_open_at_an_end_have_no_range() -> None:
    assert tvm.arith.IntGroupBounds(1, [0], [], []).find_best_range() is None


def test_transformations_of_constraints_are_checked_both_ways() -> None:
    x, y = te.var("x"), te.var("y")
    ranges = {x: tvm.ir.Range(0, 6), y: tvm.ir.Range(0, 4)}
    found = tvm.arith.solve_linear_equations([x + y.astype("int32") * 2 == 6], [x, y], ranges)
    tvm.testing.check_int_constraints_trans_consistency(found)
    wrong = found.replace(dst_to_src={v: e + 1 for v, e in found.dst_to_src.items()})
    with pytest.raises(AssertionError, match="is not true for"):
        tvm.testing.check_int_constraints_trans_consistency(wrong)
