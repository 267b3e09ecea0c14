"""``Target``: text form, options, errors, the current target."""

from __future__ import annotations

import pytest
from llvmlite import binding

import tilewright as tvm
from tilewright.ir.errors import TilewrightError
from tilewright.target import Target, create


def test_the_text_is_that_of_tvm() -> None:
    assert str(Target("llvm")) == "llvm -keys=cpu -link-params=0"  # as in TVM 0.8's tuning records


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("llvm -mcpu=core-avx2", "llvm -keys=cpu -link-params=0 -mcpu=core-avx2"),
        ("c", "c -keys=cpu -link-params=0"),
        ("cuda", "cuda -keys=cuda,gpu -max_num_threads=1024 -thread_warp_size=32"),
        ("llvm -mattr=+avx2,-fma -libs=cblas", "llvm -keys=cpu -libs=cblas -link-params=0 -mattr=+avx2,-fma"),
        ("llvm -device=arm_cpu", "llvm -keys=arm_cpu,cpu -device=arm_cpu -link-params=0"),
        ("llvm --system-lib", "llvm -keys=cpu -link-params=0 -system-lib=1"),
        ("ext_dev", "ext_dev"),
        ({"kind": "llvm", "mcpu": "znver3"}, "llvm -keys=cpu -link-params=0 -mcpu=znver3"),
        ('{"kind": "llvm", "mattr": ["+avx2"]}', "llvm -keys=cpu -link-params=0 -mattr=+avx2"),
    ],
)
def test_construction(given: object, text: str) -> None:
    made = Target(given)  # type: ignore[arg-type]
    assert str(made) == text
    assert Target(text) == made
    assert hash(Target(text)) == hash(made)
    assert Target(made.export()) == made


def test_attributes() -> None:
    target = Target("llvm -mcpu=core-avx2 -mtriple=x86_64-linux-gnu -mattr=+fma -model=board", host="c")
    assert (target.kind.name, target.keys, target.model) == ("llvm", ("cpu",), "board")
    assert (target.mcpu, target.mtriple, target.mattr) == ("core-avx2", "x86_64-linux-gnu", ("+fma",))
    assert target.attrs["mcpu"] == "core-avx2"
    assert target.host == Target("c")
    assert Target("cuda").max_num_threads == 1024


def test_the_current_target_is_the_innermost() -> None:
    assert Target.current() is None
    with pytest.raises(TilewrightError, match="no current target"):
        Target.current(allow_none=False)
    with Target("llvm") as outer:
        with Target("c") as inner:
            assert Target.current() is inner
        assert Target.current() is outer
    assert Target.current() is None


def test_helpers() -> None:
    assert tvm.target.arm_cpu("rasp4b64").mtriple == "aarch64-linux-gnu"
    assert tvm.target.arm_cpu("rasp4b64").keys == ("arm_cpu", "cpu")
    assert tvm.target.cuda(arch="sm_80").attrs["arch"] == "sm_80"
    assert create("llvm") == Target("llvm")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "empty"),
        ("lvm", r"unknown target kind 'lvm' \(did you mean 'llvm'\?\); there is llvm, c, cuda"),
        ("llvm -mcp=x", "did you mean -mcpu"),
        ("llvm -mcpu=x -mcpu=y", "given twice"),
        ("llvm avx2", "expected an option"),
        ("llvm -link-params=maybe", "takes bool"),
        ("{broken", "no valid JSON"),
        ({"mcpu": "x"}, "does not say its kind"),
        (3, "a target is a string"),
    ],
)
def test_errors_say_what_there_is(given: object, message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        Target(given)  # type: ignore[arg-type]


def test_which_llvm_generates_code() -> None:
    assert tvm.target.codegen.llvm_version_major() == binding.llvm_version_info[0]
