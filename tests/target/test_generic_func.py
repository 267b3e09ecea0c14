"""Functions that dispatch on the target."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright as tvm
from tilewright.ir.errors import TilewrightError
from tilewright.target import Target
from tilewright.target.generic_func import GenericFunc, generic_func, implemented_in


def make():  # type: ignore[no-untyped-def]
    @tvm.target.generic_func
    def layout(x):  # type: ignore[no-untyped-def]
        """Docs."""
        return f"default {x}"

    @layout.register("cpu")
    def _(x):  # type: ignore[no-untyped-def]
        return f"cpu {x}"

    @layout.register(["arm_cpu", "gpu"])
    def _(x):  # type: ignore[no-untyped-def]
        return f"special {x}"

    return layout


def test_the_first_key_with_an_implementation_counts() -> None:
    layout = make()
    assert (layout.__name__, layout.__doc__) == ("layout", "Docs.")
    assert layout(1) == "default 1"
    with Target("llvm"):
        assert layout(1) == "cpu 1"
    with Target("llvm -device=arm_cpu"):
        assert layout(1) == "special 1"
    with Target("ext_dev"):
        assert layout(1) == "default 1"


def test_an_implementation_is_replaced_only_when_asked() -> None:
    layout = make()
    with pytest.raises(TilewrightError, match="has an implementation for 'cpu' already"):
        layout.register(lambda x: x, "cpu")
    layout.register(lambda x: "new", "cpu", allow_override=True)
    with Target("llvm"):
        assert layout(1) == "new"


def test_functions_by_name() -> None:
    @tvm.target.override_native_generic_func("tests.target.by_name")
    def first(x: int) -> int:
        return x

    same = tvm.target.get_native_generic_func("tests.target.by_name")
    assert same is first
    assert same(3) == 3
    with pytest.raises(TilewrightError, match="no implementation for target None; there is one for none"):
        tvm.target.get_native_generic_func("tests.target.unknown")(1)


def test_the_default_and_the_implementations_can_be_looked_at() -> None:
    layout = make()
    assert layout.fdefault(1) == "default 1"
    assert sorted(layout.dispatch_dict) == ["arm_cpu", "cpu", "gpu"]
    layout.set_default(lambda x: "other", allow_override=True)
    with pytest.raises(TilewrightError, match="has a default already"):
        layout.set_default(lambda x: "third")
    assert layout(1) == "other"


@pytest.mark.parametrize("native", [False, True])
def test_an_implementation_is_registered_in_the_ways_that_tvm_has(native: bool) -> None:
    made = tvm.target.override_native_generic_func("tests.target.ways") if native else tvm.target.generic_func
    ways = made(lambda: "default")

    @ways.register("a")
    def _() -> str:
        return "a"

    ways.register("b", lambda: "b")
    ways.register(lambda: "c", "c")
    ways.register(func=lambda: "d", key_list=["d", "e"])
    ways.register(["f"], lambda: "f", True)
    for key, expected in [("a", "a"), ("b", "b"), ("c", "c"), ("d", "d"), ("e", "d"), ("f", "f"), ("g", "default")]:
        with Target(f"llvm -keys={key}"):
            assert ways() == expected
    with pytest.raises(TilewrightError, match="say for which target key"):
        ways.register(lambda: "nowhere")


def test_named_functions_take_a_second_implementation_as_tvms_do() -> None:
    @tvm.target.override_native_generic_func("tests.target.replaced")
    def named() -> str:
        return "default"

    named.register("cpu", lambda: "first")
    named.register("cpu", lambda: "second")
    with Target("llvm"):
        assert named() == "second"
    with pytest.raises(TilewrightError, match="has an implementation for 'cpu' already"):
        named.register("cpu", lambda: "third", override=False)


def _later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[GenericFunc, str]:
    """A function whose implementation for a key is in a module that nothing has imported, and that key."""
    function, key = generic_func(lambda: "default"), f"key_of_{tmp_path.name}"
    name = f"module_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        f"from tests.target import test_generic_func as t\nt.waiting.provide({key!r}, lambda: 'provided')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(globals(), "waiting", function)
    implemented_in(key, name)
    return function, key


def test_a_module_of_implementations_is_imported_when_its_key_is_looked_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    function, key = _later(monkeypatch, tmp_path)
    assert function() == "default" and not function.dispatch_dict
    with Target(f"llvm -keys={key}"):
        assert function() == "provided"


def test_an_implementation_that_users_register_replaces_one_that_was_not_imported_yet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    function, key = _later(monkeypatch, tmp_path)
    with pytest.raises(TilewrightError, match="has an implementation for"):
        function.register(key, lambda: "another")
    function.register(key, lambda: "mine", override=True)
    with Target(f"llvm -keys={key}"):
        assert function() == "mine"
