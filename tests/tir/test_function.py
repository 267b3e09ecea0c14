"""PrimFunc: what its parameters may be."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.ir.errors import TilewrightError


def test_a_buffer_as_a_parameter_gets_a_handle() -> None:
    a = tir.decl_buffer((3,), "float32", "a")
    i = tir.Var("i", "int32")
    body = tir.For(i, 0, 3, 0, tir.Store(a.data, tir.Load("float32", a.data, i) + 1.0, i))
    func = tir.PrimFunc([a], body, attrs={"global_symbol": "f"})
    (param,) = func.params
    assert (param.name, param.dtype, func.buffer_map) == ("a", "handle", {param: a})
    array = tvm.nd.array(np.zeros(3, "float32"))
    tvm.driver.build(tvm.IRModule.from_expr(func), target="llvm")(array)
    assert array.numpy().tolist() == [1, 1, 1]


def test_a_pointer_of_an_ir_builder_is_its_variable() -> None:
    builder = tir.ir_builder.create()
    a = builder.pointer("float32", name="a")
    a[0] = 2.0
    func = tir.PrimFunc([a], builder.get())
    assert [p.name for p in func.params] == ["a"]
    assert func.buffer_map == {}


def test_other_things_are_refused() -> None:
    with pytest.raises(TilewrightError, match="a parameter of a PrimFunc is a Var or a Buffer, not int"):
        tir.PrimFunc([3], tir.Evaluate(0))
