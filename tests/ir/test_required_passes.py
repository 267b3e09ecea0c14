"""Passes that others require: ``Sequential`` runs them in TVM 0.8's order."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.ir.instrument import PassInstrument, pass_instrument
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext, PassInfo, Sequential, module_pass


def small_module() -> IRModule:
    x = relay.var("x", shape=(2,))
    return IRModule.from_expr(relay.Function([x], relay.exp(x)))


def _recording(names: list[str]) -> PassInstrument:
    @pass_instrument
    class Names:
        def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
            names.append(info.name)

    return Names()


def _run(*passes: object, **context: object) -> list[str]:
    """The names of the passes that run, the Sequential's left out."""
    names: list[str] = []
    with PassContext(instruments=[_recording(names)], **context):
        Sequential(list(passes))(small_module())
    return names[1:]


def test_passes_of_tvm_declare_what_they_require() -> None:
    from tilewright.relay import transform as relay_passes

    required = {
        name: tuple(getattr(relay_passes, name)().info.required)
        for name in ("FuseOps", "SimplifyInference", "AlterOpLayout", "FoldConstant", "MergeCompilerRegions")
    }
    inferred = ("InferType",)
    assert required == {
        "FuseOps": inferred,
        "SimplifyInference": inferred,
        "AlterOpLayout": inferred,
        "FoldConstant": (),
        "MergeCompilerRegions": (),
    }


def test_required_passes_run_right_before_the_pass() -> None:
    first = module_pass(lambda mod, ctx: mod, 0, "first")
    wanting = module_pass(lambda mod, ctx: mod, 0, "wanting", ["InferType", "CanonicalizeOps"])
    assert _run(first, wanting) == ["first", "InferType", "CanonicalizeOps", "wanting"]


def test_required_passes_run_whatever_their_level() -> None:
    wanting = module_pass(lambda mod, ctx: mod, 0, "wanting", ["CanonicalizeOps"])  # of level 3
    assert _run(wanting, opt_level=0) == ["CanonicalizeOps", "wanting"]


def test_required_passes_run_though_they_are_disabled() -> None:
    wanting = module_pass(lambda mod, ctx: mod, 0, "wanting", ["InferType"])
    assert _run(wanting, disabled_pass=["InferType"]) == ["InferType", "wanting"]


@pytest.mark.parametrize("context", [{"opt_level": 1}, {"disabled_pass": ["wanting"]}])
def test_what_a_pass_that_does_not_run_requires_does_not_run(context: dict[str, object]) -> None:
    assert _run(module_pass(lambda mod, ctx: mod, 2, "wanting", ["InferType"]), **context) == []


def test_a_pass_called_alone_runs_alone() -> None:
    names: list[str] = []
    with PassContext(instruments=[_recording(names)]):
        module_pass(lambda mod, ctx: mod, 0, "wanting", ["InferType"])(small_module())
    assert names == ["wanting"]


def test_what_a_required_pass_makes_is_what_the_pass_takes() -> None:
    types = []
    seen = module_pass(lambda mod, ctx: types.append(mod["main"].checked_type_or_none) or mod, 0, "s", ["InferType"])
    Sequential([seen])(small_module())
    assert types != [None]


def test_a_pass_that_a_program_registers_can_be_required() -> None:
    made = module_pass(lambda mod, ctx: mod, 0, "OfAProgram")
    tvm.register_func("relay._transform.OfAProgram", lambda: made)
    assert _run(module_pass(lambda mod, ctx: mod, 0, "w", ["OfAProgram"])) == ["OfAProgram", "w"]


def test_passes_of_loops_can_be_required() -> None:
    assert _run(module_pass(lambda mod, ctx: mod, 0, "w", ["tir.RemoveNoOp"])) == ["tir.RemoveNoOp", "w"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "InfrType",
            r"the pass w requires 'InfrType' \(did you mean 'InferType'\?\), and there is no pass",
        ),
        ("MergeComposite", r"requires MergeComposite, which cannot be made without arguments .*; put it before w"),
        ("PassInfo", r"cannot be made without arguments"),
        ("annotation.Nothing", r"register a global function relay._transform.Nothing that makes it"),
    ],
)
def test_a_required_pass_that_there_is_not_is_said(name: str, message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        _run(module_pass(lambda mod, ctx: mod, 0, "w", [name]))
