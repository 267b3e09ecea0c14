"""IR text to object code in this process: what LLVM refuses leaves nothing behind."""

from __future__ import annotations

import gc

import pytest

from tilewright.target import llvm_compile
from tilewright.target.features import host_features

GOOD = "define i32 @one() {\n  ret i32 1\n}\n"
# Its declaration has another signature than the intrinsic: the verifier finds that, the parser does not.
BAD = "declare i32 @llvm.ctpop.i32(i64)\ndefine i32 @two() {\n  %x = call i32 @llvm.ctpop.i32(i64 3)\n  ret i32 %x\n}\n"


def _compile(text: str) -> bytes:
    host = host_features()
    return llvm_compile.compile_ir(text, host.triple, host.cpu, host.feature_string)


def test_modules_end_before_their_context_when_something_fails() -> None:
    with pytest.raises(RuntimeError), llvm_compile.parsed(GOOD, BAD) as modules:
        kept = modules
        kept[1].verify()
    assert all(module.closed for module in kept)


def test_a_kernel_that_llvm_refuses_does_not_harm_the_next() -> None:
    errors = []
    for _ in range(5):
        try:
            _compile(BAD)
        except RuntimeError as error:
            errors.append(error)  # with its traceback, and so the frames
        assert _compile(GOOD)[:4] == b"\x7fELF"
    assert len(errors) == 5
    errors.clear()
    gc.collect()
    assert _compile(GOOD)[:4] == b"\x7fELF"


def test_functions_that_several_texts_bring_are_linked_once() -> None:
    caller = "declare i32 @one()\ndefine i32 @main() {\n  %x = call i32 @one()\n  ret i32 %x\n}\n"
    text, calls = llvm_compile.link_texts([caller, GOOD, GOOD], private=True)
    assert calls == [] and text.count("define internal i32 @one()") == 1
    with pytest.raises(RuntimeError, match="one"):
        llvm_compile.link_texts([caller, GOOD, GOOD.replace("1", "7")], private=True)
