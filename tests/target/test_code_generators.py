"""Code generators are registered by target kind, and a module is built of functions for several targets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.target.codegen_helpers import elementwise, module

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.module import IRModule
from tilewright.runtime.registry import remove_global_func
from tilewright.target import Target
from tilewright.target.build import ModuleBuilder
from tilewright.target.code_generator import register_code_generator
from tilewright.testing.tir_interpreter import run
from tilewright.tir import PrimFunc


def adder(name: str, amount: float, target: str | None = None, count: int = 5) -> PrimFunc:
    """A function that adds ``amount`` to each element of a vector of ``count``."""
    func = elementwise(lambda x: x + amount, ["float32"], "float32", count, name=name)
    return func if target is None else func.with_attr("target", Target(target))


def result_of(built: tvm.runtime.Module, name: str, count: int = 5) -> list[float]:
    """What the function gives for a vector of zeros."""
    given, out = tvm.nd.array(np.zeros(count, "float32")), tvm.nd.array(np.full(count, np.nan, "float32"))
    built.get_function(name, query_imports=True)(given, out)
    return list(out.numpy())


def interpreted(mod: IRModule) -> tvm.runtime.Module:
    """A module that interprets its functions."""

    def find(name: str):  # type: ignore[no-untyped-def]
        if name not in mod:
            return None

        def call(given: tvm.nd.NDArray, out: tvm.nd.NDArray) -> None:
            values = [given.numpy(), out.numpy()]
            run(mod[name], *values)
            out.copyfrom(values[1])

        return call

    return tvm.runtime.create_module("interpreted", find)


@pytest.fixture
def seen() -> Iterator[list[tuple[list[str], Target]]]:
    """A code generator of the simple form for the kind ``ext_dev``; what it was called with."""
    calls: list[tuple[list[str], Target]] = []

    @tvm.register_func("target.build.ext_dev")
    def build(mod: IRModule, target: Target) -> tvm.runtime.Module:
        assert all(func.attrs["target"] == target for func in mod.functions.values())  # type: ignore[attr-defined]
        calls.append(([var.name_hint for var in mod.functions], target))
        return interpreted(mod)

    yield calls
    remove_global_func("target.build.ext_dev")


def test_a_function_of_a_module_and_a_target_is_a_code_generator(seen: list[tuple[list[str], Target]]) -> None:
    built = tvm.build({"ext_dev": module(adder("one", 1.0), adder("two", 2.0))})
    assert built.type_key == "interpreted"
    assert seen == [(["one", "two"], Target("ext_dev"))]
    assert result_of(built, "two") == [2] * 5


def test_a_schedule_is_built_by_it(seen: list[tuple[list[str], Target]]) -> None:
    a = te.placeholder((7,), name="a")
    b = te.compute((7,), lambda i: a[i] + 3.0, name="b")
    built = tvm.build(te.create_schedule(b.op), [a, b], "ext_dev -model=x", name="three")
    assert seen == [(["three"], Target("ext_dev -model=x"))]
    assert result_of(built, "three", 7) == [3] * 7


def test_functions_go_one_by_one_to_a_generator_that_takes_them_so() -> None:
    events: list[str] = []

    @register_code_generator("ext_dev")
    class Generator:
        def __init__(self, target: Target) -> None:
            self.mod = IRModule()
            events.append(f"begin {target}")

        def add(self, func: PrimFunc) -> None:
            events.append(f"add {func.attrs['global_symbol']}")
            self.mod[str(func.attrs["global_symbol"])] = func

        def finish(self) -> tvm.runtime.Module:
            events.append("finish")
            return interpreted(self.mod)

    try:
        builder = ModuleBuilder("ext_dev")
        builder.add(adder("one", 1.0))
        assert events == ["begin ext_dev", "add one"]
        builder.add(adder("two", 2.0))
        assert result_of(builder.finish(), "one") == [1] * 5
        assert events[2:] == ["add two", "finish"]
        whole = tvm.get_global_func("target.build.ext_dev")
        assert whole is not None
        assert result_of(whole(module(adder("four", 4.0)), Target("ext_dev")), "four") == [4] * 5
    finally:
        remove_global_func("target.build.ext_dev")


@pytest.mark.parametrize("kind", ["llvm", "c"])
def test_the_built_in_ones_are_registered_like_any_other(kind: str) -> None:
    build = tvm.get_global_func(f"target.build.{kind}")
    assert build is not None
    built = build(module(adder("one", 1.0)), Target(kind))
    assert built.type_key == kind
    assert result_of(built, "one") == [1] * 5


def test_a_kind_without_a_code_generator_says_how_to_register_one() -> None:
    with pytest.raises(UnsupportedError, match=r"kind 'rocm'; there is one for c, .*llvm.*target\.build\.rocm"):
        tvm.build({"rocm": module(adder("one", 1.0))})


def test_a_second_one_for_a_kind_is_refused() -> None:
    with pytest.raises(tvm.TVMError, match=r"target\.build\.c is already registered"):
        register_code_generator("c", lambda target: None)  # type: ignore[arg-type,return-value]


def test_what_a_code_generator_returns_is_checked() -> None:
    tvm.register_func("target.build.ext_dev", lambda mod, target: "module")
    try:
        with pytest.raises(TilewrightError, match=r"target\.build\.ext_dev returned a str"):
            tvm.build({"ext_dev": module(adder("one", 1.0))})
    finally:
        remove_global_func("target.build.ext_dev")


# ---- several targets ----


def test_functions_go_to_the_generators_of_their_targets(seen: list[tuple[list[str], Target]]) -> None:
    mod = module(adder("one", 1.0), adder("two", 2.0, "ext_dev"), adder("three", 3.0, "c"), adder("four", 4.0))
    built = tvm.build(mod, target="llvm")
    assert [m.type_key for m in (built, *built.imported_modules)] == ["llvm", "interpreted", "c"]
    assert [result_of(built, name)[0] for name in ("one", "two", "three", "four")] == [1, 2, 3, 4]
    assert seen == [(["two"], Target("ext_dev"))]
    assert not built.implements_function("two")


def test_the_host_is_what_the_others_are_imported_by(seen: list[tuple[list[str], Target]]) -> None:
    builder = ModuleBuilder("ext_dev", "c")
    for func in (adder("one", 1.0), adder("two", 2.0, "llvm"), adder("three", 3.0, "c")):
        builder.add(func)
    built = builder.finish()
    assert [m.type_key for m in (built, *built.imported_modules)] == ["c", "interpreted", "llvm"]
    assert [result_of(built, name)[0] for name in ("one", "two", "three")] == [1, 2, 3]


def test_without_a_function_for_the_host_the_first_target_has_the_module(
    seen: list[tuple[list[str], Target]],
) -> None:
    built = tvm.build({"ext_dev": module(adder("one", 1.0)), "c": module(adder("two", 2.0))}, target_host="llvm")
    assert [m.type_key for m in (built, *built.imported_modules)] == ["interpreted", "c"]


def test_a_dictionary_of_targets_overrules_what_functions_say(seen: list[tuple[list[str], Target]]) -> None:
    built = tvm.build({"llvm": module(adder("one", 1.0, "ext_dev"))})
    assert built.type_key == "llvm"
    assert seen == []


def test_options_make_another_target(tmp_path: Path) -> None:
    mod = module(adder("one", 1.0, "llvm -opt-level=1"), adder("two", 2.0, "llvm"))
    built = tvm.build(mod, target="llvm")
    assert [m.type_key for m in (built, *built.imported_modules)] == ["llvm", "llvm"]
    built.export_library(tmp_path / "both.so")
    loaded = tvm.runtime.load_module(tmp_path / "both.so")
    assert [result_of(loaded, name)[0] for name in ("one", "two")] == [1, 2]


def test_two_functions_of_one_name_are_refused_whatever_their_targets() -> None:
    builder = ModuleBuilder("llvm")
    builder.add(adder("one", 1.0))
    with pytest.raises(TilewrightError, match="two functions named one"):
        builder.add(adder("one", 1.0, "c"))


def test_an_empty_module_is_the_default_targets() -> None:
    assert ModuleBuilder("c").finish().type_key == "c"
