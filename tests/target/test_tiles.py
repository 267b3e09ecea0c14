"""Where AMX's tiles are configured: once around loops, but not where others may use tiles inside."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, tir
from tilewright.ir.prim_expr import StringImm
from tilewright.target.codegen.llvm.tiles import KEY, configuration_of
from tilewright.tir import ir_builder

FIRST, SECOND = "01" + "00" * 63, "01" + "00" * 62 + "10"


def _loop(*tiles: str, inside: tir.PrimExpr | None = None, kind: str = "serial") -> tir.Stmt:
    ib = ir_builder.create()
    out = ib.pointer("int32", "out")
    with ib.for_range(0, 4, "i", kind=kind) as i:
        for text in tiles:
            with ib.new_scope():
                ib.scope_attr("tiles", KEY, StringImm(text))
                out[i] = tir.const(1, "int32")
        if inside is not None:
            ib.emit(tir.Evaluate(inside))
    return ib.get()


def test_loops_of_one_configuration_are_configured_once() -> None:
    assert configuration_of(_loop(FIRST)) == FIRST
    assert configuration_of(_loop(FIRST, FIRST)) == FIRST


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(_loop(), id="no tiles"),
        pytest.param(_loop(FIRST, SECOND), id="two configurations"),
        pytest.param(_loop(FIRST, kind="parallel"), id="tasks"),
        pytest.param(_loop(FIRST, inside=tir.call_packed("other")), id="a packed function"),
        pytest.param(_loop(FIRST, inside=tir.call_extern("int32", "other")), id="a function of C"),
    ],
)
def test_other_loops_stay(loop: tir.Stmt) -> None:
    assert configuration_of(loop) is None


def test_tasks_configure_tiles_before_their_loops() -> None:
    x = relay.var("x", shape=(64, 256), dtype="uint8")
    weight = relay.const(np.ones((512, 256), "int8"))
    func = relay.Function([x], relay.nn.dense(x, weight, out_dtype="int32"))
    with tvm.transform.PassContext(opt_level=3):
        text = relay.build(tvm.IRModule.from_expr(func), "llvm -mcpu=sapphirerapids").get_lib().get_source("ll")
    assert text.count("call void @llvm.x86.ldtilecfg") == text.count("call void @llvm.x86.tilerelease") == 1
    lines = text.splitlines()
    configured = next(i for i, line in enumerate(lines) if "call void @llvm.x86.ldtilecfg" in line)
    entry = max(i for i, line in enumerate(lines[:configured]) if line.startswith("define"))
    assert not any(" phi " in line for line in lines[entry:configured])  # in no loop
