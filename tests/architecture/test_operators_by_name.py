"""Facts about operators are traits and hooks of the operator: passes and back ends name no operator in a string.

An operator is compared with an imported one (``call_of(expr, add.op)``), asked for a trait (``trait_of``) or a hook,
and built by its builder. A table keyed by names has to learn of every new operator; a trait is declared with it.
Patterns (``is_op("nn.conv2d")``) name operators on purpose, and declarations have to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright.relay.qnn  # noqa: F401
from tilewright import relay  # noqa: F401
from tilewright.ir.op import Op

ROOT = Path(__file__).parents[2]
RELAY = ROOT / "src/tilewright/relay"
FOLDERS = (
    *(RELAY / part for part in ("transform", "backend", "qnn", "data_dep_optimization")),
    *ROOT.glob("plugins/*/src"),
)

# Words that are operators' names too, and mean something else in these files.
WORDS: dict[str, set[str]] = {
    "plugins/npu/src/tilewright_npu/codegen/layers.py": {"add", "max", "mean", "sum"},  # kinds of layers
    "plugins/npu/src/tilewright_npu/codegen/others.py": {"max", "mean", "sum"},  # the same
    "plugins/npu/src/tilewright_npu/report.py": {"all"},  # the last line
    "src/tilewright/relay/backend/executor.py": {"debug"},  # an executor
    "src/tilewright/relay/backend/graph_codegen.py": {"reshape"},  # a kind of view
    "src/tilewright/relay/backend/graph_executor.py": {"transpose"},  # in the names of implementations
    "src/tilewright/relay/transform/memory/plan_views.py": {"reshape"},  # a kind of view
    "src/tilewright/relay/transform/recognize/recognize_activations.py": {"tanh"},  # a form of nn.gelu
}


def _strings(tree: ast.AST) -> Iterator[str]:
    """String literals outside of docstrings, patterns and the names of declarations."""
    match tree:
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Call(func=ast.Name(id="is_op" | "register_op_attr")):
            return
        case ast.Assign(targets=[ast.Name(id="name")], value=ast.Constant()):
            return
        case ast.Constant(value=str(text)):
            yield text
    for child in ast.iter_child_nodes(tree):
        yield from _strings(child)


def names_in(path: Path) -> list[str]:
    """Return the operators of Relay that a file names, each time it does."""
    words = WORDS.get(path.relative_to(ROOT).as_posix(), set())
    strings = _strings(ast.parse(path.read_text(encoding="utf-8")))
    return [text for text in strings if text in Op.registry and not text.startswith("tir.") and text not in words]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_passes_and_back_ends_name_no_operators(folder: Path) -> None:
    found = {path.relative_to(ROOT).as_posix(): names_in(path) for path in sorted(folder.rglob("*.py"))}
    named = {path: names for path, names in found.items() if names}
    assert not named, (
        f"operators by name: {named}; compare with an imported operator (call_of(expr, add.op)) or ask for a trait of "
        "relay/op/definition.py, see docs/decisions/2026-11-26-operator-traits.md"
    )
