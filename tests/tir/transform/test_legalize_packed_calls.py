"""LegalizePackedCalls: what it makes of a call, and that another compiler's function finds the data."""

from __future__ import annotations

import tilewright as tvm
from tilewright import tir
from tilewright.tir.stmt import Evaluate


def run(*args: object) -> str:
    body = Evaluate(tir.call_cpacked("f", *args))
    return str(tir.transform.LegalizePackedCalls()(tvm.IRModule({"main": tir.PrimFunc([], body)}))["main"].body)


AFTER = """
let tvm_value_1: handle = @tir.tvm_stack_alloca("array", 1, dtype=handle);
let tvm_value_0: handle = @tir.tvm_stack_alloca("array", 1, dtype=handle) {
  @tir.tvm_struct_set(tvm_value_0, 0, 1, a, dtype=handle)
  @tir.tvm_struct_set(tvm_value_1, 0, 1, b, dtype=handle)
  @tir.tvm_call_cpacked("f", tvm_value_0, 3, tvm_value_1, dtype=int32)
}
"""


def test_pointers_become_tensors() -> None:
    assert run(tir.Var("a", "handle"), tir.const(3, "int32"), tir.Var("b", "handle")).strip() == AFTER.strip()


def test_numbers_stay() -> None:
    assert "let" not in run(tir.const(1, "int32"), tir.Var("n", "int64"))
