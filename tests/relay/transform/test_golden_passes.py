"""Passes against what TVM 0.8 printed before and after each (tests/golden/passes)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import transform

GOLDEN = Path(__file__).parents[2] / "golden" / "passes"

FOLD_BATCH_NORM = (transform.SimplifyInference, transform.FoldConstant, transform.FoldScaleAxis)

CASES: dict[str, Callable[[], list[Pass]]] = {
    "a_normal_form": lambda: [transform.ToANormalForm()],
    "alter_op_layout": lambda: [transform.AlterOpLayout()],
    "byoc_dnnl": lambda: [transform.AnnotateTarget("dnnl"), transform.PartitionGraph()],
    "byoc_dnnl_merged_regions": lambda: [
        *(make() for make in FOLD_BATCH_NORM),
        transform.AnnotateTarget("dnnl"),
        transform.MergeCompilerRegions(),
        transform.PartitionGraph(),
    ],
    "convert_layout_nhwc": lambda: [transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})],
    "eliminate_common_subexpr": lambda: [transform.EliminateCommonSubexpr()],
    "fold_scale_axis": lambda: [transform.ForwardFoldScaleAxis(), transform.BackwardFoldScaleAxis()],
    "fuse_ops": lambda: [transform.FuseOps(2)],
    "simplify_inference": lambda: [transform.SimplifyInference()],
}


def read(name: str) -> str:
    return (GOLDEN / name).read_text()


def in_order_of(text: str, mod: tvm.IRModule) -> tvm.IRModule:
    """The functions as ``text`` has them: TVM's order of several is that of a hash table."""
    names = re.findall(r"^def @(\w+)", text, re.MULTILINE)
    assert sorted(names) == sorted(v.name_hint for v in mod.get_global_vars())
    return tvm.IRModule({mod.get_global_var(name): mod[name] for name in names})


@pytest.mark.parametrize("name", CASES)
def test_pass_gives_the_text_of_tvm(name: str) -> None:
    mod = tvm.parser.fromtext('#[version = "0.0.5"]\n' + read(f"{name}.before.txt"))
    with PassContext(opt_level=3), tvm.target.Target("llvm -mcpu=core-avx2"):
        mod = relay.transform.InferType()(mod)
        for step in CASES[name]():
            mod = step(mod)
    expected = read(f"{name}.after.txt")
    assert str(in_order_of(expected, mod)).strip() == expected.strip()
