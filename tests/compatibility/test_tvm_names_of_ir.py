"""Names of ``tvm.ir`` and ``tvm.runtime`` that programs written for TVM 0.8 use, and what they do here."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, tir
from tilewright.ir.errors import TilewrightError


def test_expressions_of_all_levels_have_one_base() -> None:
    for expression in (tir.Var("x") + 1, relay.var("x"), relay.const(1), tvm.ir.Op.get("add"), tvm.ir.GlobalVar("f")):
        assert isinstance(expression, tvm.ir.BaseExpr)
    assert not isinstance(relay.TensorType((1,)), tvm.ir.BaseExpr)


def test_every_node_has_a_text() -> None:
    assert tvm.ir.Range(0, 4).astext() == str(tvm.ir.Range(0, 4))
    assert relay.TensorType((3, 4)).astext() == "Tensor[(3, 4), float32]"
    assert relay.var("x", shape=(2,)).astext().startswith('#[version = "0.0.5"]')


def test_data_types_are_found_in_ir() -> None:
    assert tvm.ir.Constructor is relay.Constructor is tvm.ir.adt.Constructor
    assert tvm.ir.TypeData is relay.TypeData
    with pytest.raises(AttributeError, match="NoSuch"):
        tvm.ir.adt.NoSuch  # noqa: B018


def test_attributes_tell_their_fields() -> None:
    call = relay.nn.dense(relay.var("x", shape=(1, 2)), relay.var("w", shape=(3, 2)), units=3)
    fields = {field.name: field for field in call.attrs.list_field_info()}
    assert list(fields) == list(call.attrs.keys())
    assert "int" in fields["units"].type_info
    assert fields["out_dtype"].description == "'' by default"


def test_the_level_of_a_pass_comes_first() -> None:
    info = tvm.transform.PassInfo(2, "mine", ["InferType"])
    assert (info.opt_level, info.name, list(info.required)) == (2, "mine", ["InferType"])
    assert relay.transform.FuseOps().info.name == "FuseOps"


def test_instruments_are_made_with_and_without_parentheses() -> None:
    @tvm.instrument.pass_instrument
    class First:
        seen: list[str] = []  # noqa: RUF012

        def run_before_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
            self.seen.append(info.name)

    @tvm.instrument.pass_instrument()
    class Second(First):  # type: ignore[misc]
        seen: list[str] = []  # noqa: RUF012

    mod = tvm.IRModule.from_expr(relay.var("x", shape=(2,)))
    with tvm.transform.PassContext(instruments=[First(), Second()]):
        relay.transform.InferType()(mod)
    assert First.seen == Second.seen == ["InferType"]


def test_an_operators_attributes_are_of_the_class_it_names() -> None:
    op = tvm.ir.Op.get_or_register("test.names_of_ir")
    op.set_attrs_type_key("relay.attrs.DenseAttrs")
    op.add_type_rel("test.names_of_ir", lambda types, attrs: types[0])
    x = relay.var("x", shape=(2,))
    right = relay.Call(op, [x], tvm.ir.make_node("relay.attrs.DenseAttrs", units=3))
    assert relay.transform.InferType()(tvm.IRModule.from_expr(right))["main"].ret_type == relay.TensorType((2,))
    wrong = relay.Call(op, [x], tvm.ir.make_node("DictAttrs", units=3))
    with pytest.raises(TilewrightError, match="attributes of the class DenseAttrs, a call has DictAttrs"):
        relay.transform.InferType()(tvm.IRModule.from_expr(wrong))
    with pytest.raises(ValueError, match="NoSuchAttrs"):
        op.set_attrs_type_key("relay.attrs.NoSuchAttrs")


def test_objects_that_stand_for_others_are_converted() -> None:
    class Count(tvm.runtime.ObjectGeneric):
        def asobject(self) -> object:
            return tir.const(7)

    assert tvm.convert(Count()).value == 7
    assert tvm.convert([Count()])[0].value == 7
    with pytest.raises(NotImplementedError, match="defines no asobject"):
        tvm.convert(tvm.runtime.ObjectGeneric())


def test_classes_of_ones_own_are_arguments_of_kernels() -> None:
    @tvm.register_extension
    class View:
        _tvm_tcode = tvm._ffi.runtime_ctypes.ArgTypeCode.DLTENSOR_HANDLE

        def __init__(self, array: tvm.nd.NDArray) -> None:
            self.array = array

        @property
        def _tvm_handle(self) -> int:
            return self.array._tvm_handle

    a = te.placeholder((5,), name="a")
    b = te.compute((5,), lambda i: a[i] + 1.0, name="b")
    built = tvm.build(te.create_schedule(b.op), [a, b], "llvm")
    x, y = tvm.nd.array(np.arange(5, dtype="float32")), tvm.nd.empty((5,))
    built(View(x), View(y))
    np.testing.assert_array_equal(y.numpy(), np.arange(5) + 1)


def test_a_class_without_a_pointers_code_is_refused() -> None:
    with pytest.raises(TypeError, match="needs _tvm_tcode, which is 7 for a DLTensor"):
        tvm.register_extension(type("Plain", (), {}))


@pytest.mark.parametrize(("short", "full"), [("float", "float32"), ("int", "int32"), ("uint", "uint32")])
def test_short_names_of_dtypes_are_the_full_ones(short: str, full: str) -> None:
    x = tir.Var("x", "int64")
    assert x.astype(short) is x.astype(full)
    assert tir.Cast(short, x) is tir.Cast(full, x)
    assert tir.const(3, short) is tir.const(3, full)
    assert tir.Var("y", short).dtype == te.var("z", short).dtype == full
    assert te.placeholder((2,), short).dtype == tir.decl_buffer((2,), short).dtype == full
    a = te.placeholder((3,), short, "a")
    b = te.compute((3,), lambda i: a[i].astype(short) + tir.const(1, full), "b")
    result = tvm.nd.empty((3,), full)
    tvm.build(te.create_schedule(b.op), [a, b], "llvm")(tvm.nd.array(np.arange(3).astype(full)), result)
    assert result.numpy().tolist() == [1, 2, 3]


def test_the_scope_of_a_buffer_is_an_attribute_and_a_method() -> None:
    shared = tvm.tir.decl_buffer((4,), scope="shared")
    assert shared.scope == shared.scope() == "shared"
    assert tvm.tir.decl_buffer((4,)).scope() == "global"


def test_devices_have_tables_of_names() -> None:
    assert all(tvm.device(name).device_type == number for name, number in tvm.runtime.Device.STR2MASK.items())
    assert tvm.runtime.Device.MASK2STR[tvm.opencl(0).device_type] == "opencl"
    assert tvm.runtime.Device.STR2MASK["llvm"] == 1
