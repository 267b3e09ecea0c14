"""Tests are close to a change by the names that they share with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.selection.closeness import Closeness, definitions, path_words

SOURCE = """
LIMIT = 3

def _inner(x):
    return x + LIMIT

def outer(x):
    return _inner(x)

def apart(x):
    return x

class Shape:
    name = "shape_of"

    def area(self):
        return 4
"""


@pytest.fixture
def closeness(tmp_path: Path) -> Closeness:
    files = {
        "src/tilewright/ir/thing.py": SOURCE,
        "src/tilewright/te/user.py": "from tilewright.ir.thing import outer\n\ndef far_user():\n    outer(1)\n",
        "native/src/vm/loop.c": 'int tw_turn(int n) { return n; }\nTW_FUNCTIONS("vm.turn", tw_turn)\n',
        "tests/ir/test_thing.py": "def test_one():\n    apart(1)\n\ndef test_two():\n    outer(1)\n",
        "tests/te/test_schedule.py": "def test_user():\n    far_user()\n",
        "tests/relay/test_shapes.py": "def test_it():\n    relay.nn.shape_of(x)\n",
        "tests/runtime/test_turns.py": "def test_turns():\n    get('vm.turn')\n",
        "tests/zoo/test_zoo.py": "def test_zoo():\n    pass\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Closeness(tmp_path)


def test_what_uses_a_changed_name_is_close_in_its_file_and_in_those_that_import_it(closeness: Closeness) -> None:
    names = closeness.names("src/tilewright/ir/thing.py", {5})
    assert names["_inner"] > names["outer"] > names["far_user"] > names["apart"] > 0


def test_the_mirroring_file_and_the_function_with_the_name_come_first(closeness: Closeness) -> None:
    order = closeness.order({"src/tilewright/ir/thing.py": {8}}, 2)
    assert list(order) == ["tests/ir/test_thing.py", "tests/te/test_schedule.py"]
    assert order["tests/ir/test_thing.py"]["test_two"] > order["tests/ir/test_thing.py"]["test_one"]


def test_a_declared_name_of_a_class_stands_for_its_methods(closeness: Closeness) -> None:
    assert closeness.names("src/tilewright/ir/thing.py", {17})["shape_of"] == 3.0
    assert "tests/relay/test_shapes.py" in list(closeness.files({"src/tilewright/ir/thing.py": {17}}))[:2]


def test_c_is_found_by_its_functions_and_texts(closeness: Closeness) -> None:
    assert next(iter(closeness.files({"native/src/vm/loop.c": None}))) == "tests/runtime/test_turns.py"


def test_a_changed_test_runs_whatever_the_count(closeness: Closeness) -> None:
    assert "tests/zoo/test_zoo.py" in closeness.order(
        {"src/tilewright/ir/thing.py": None, "tests/zoo/test_zoo.py": None}, 1
    )


def test_decorators_belong_to_what_they_decorate() -> None:
    (definition,) = definitions('@converter("ReduceMax")\ndef convert(x):\n    return x\n')
    assert (definition.first, definition.last, definition.strings) == (1, 3, {"ReduceMax"})


def test_words_of_a_path_have_the_class_name_of_its_file() -> None:
    words = path_words("src/tilewright/relay/transform/fusion/fuse_ops.py")
    assert words >= {"relay", "transform", "fusion", "fuse_ops", "FuseOps"}


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("src/tilewright/relay/transform/layout/merge_rows.py", "tests/relay/transform/test_merge_rows.py"),
        ("src/tilewright/arith/rules/minmax.py", "tests/arith/test_rules_z3.py"),
        ("src/tilewright/te/schedule/bounds.py", "tests/te/test_bounds.py"),
        ("native/src/rpc/session.c", "tests/rpc/test_session.py"),
    ],
)
def test_close_tests_of_this_repository_are_found(source: str, test: str) -> None:
    assert test in list(Closeness().files({source: None}))[:8]
