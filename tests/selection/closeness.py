"""How close each test is to a change, told from names alone: no run has to be recorded first.

A change is a source file and the lines that differ. It stands for weighted names: what the lines define, what mentions
that in the same file and in files that import it, what else the file defines, and the words of its path. A test is as
close as the names that it shares with the change are rare among tests.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NO_WORDS = {"src", "tests", "plugins", "tilewright", "native"}
TEST_FOLDERS = ("tests", "plugins/npu/tests", "plugins/model_explorer/tests")
SOURCE_FOLDERS = ("src", "plugins/npu/src", "plugins/model_explorer/src", "native")
IMPORTERS = 30  # files whose names count, of those that import a changed one
CHANGED, USER, ELSEWHERE, IMPORTER, PATH = 3.0, 2.0, 0.5, 1.0, 2.0

Changes = Mapping[str, "set[int] | None"]
"""Of each path below the repository's root the changed lines, from 1; None stands for all."""


def words(text: str) -> set[str]:
    """The identifiers in a text."""
    return set(re.findall(r"[A-Za-z_]\w+", text))


def path_words(path: str) -> set[str]:
    """Words by which a file and the tests that mirror it are called: folders, the name and its parts."""
    parts = [
        p for p in Path(path).with_suffix("").parts if p not in ("src", "tests", "plugins", "tilewright", "native")
    ]
    name = parts.pop().removeprefix("test_") if parts else ""
    camel = "".join(p.capitalize() for p in name.split("_"))
    runtime = ["runtime"] if path.startswith("native/") else []
    return {*parts, *runtime, name, camel, *name.split("_")}


class Definition:
    """A statement of a module or a class: its names, its lines and the words in it."""

    def __init__(self, node: ast.stmt, lines: list[str], outer: frozenset[str] = frozenset()):
        self.first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        self.last = node.end_lineno or node.lineno
        bound = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        own = [node.name] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else bound
        self.names = {*own, *outer}
        self.text = "\n".join(lines[self.first - 1 : self.last])
        self.words = words(self.text)
        self.strings = {w for s in re.findall(r"[\"']([\w.]+)[\"']", self.text) for w in words(s)}


def definitions(text: str) -> Iterator[Definition]:
    """The definitions of a Python file; those in classes have their class's name, too."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if not isinstance(node, ast.ClassDef):
            yield Definition(node, lines)
            continue
        named = [s.value.value for s in node.body if isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant)]
        outer = frozenset({node.name, *(w for v in named if isinstance(v, str) for w in words(v))})
        for member in node.body:
            yield Definition(member, lines, outer)


def _users(defined: list[Definition], names: set[str]) -> set[str]:
    """Names of what mentions ``names``, and of what mentions that, and so on."""
    found: set[str] = set()
    while more := {n for d in defined if d.words & (names | found) for n in d.names} - names - found:
        found |= more
    return found


class Closeness:
    """The tests of a repository by their words."""

    def __init__(self, root: Path = ROOT):
        self.root = root
        files = sorted(f for folder in TEST_FOLDERS for f in (root / folder).rglob("test_*.py"))
        self.texts = {str(f.relative_to(root)): f.read_text() for f in files}
        self.words = {path: words(text) for path, text in self.texts.items()}
        self.count = Counter(w for found in self.words.values() for w in found)
        self.path_count = Counter(w for path in self.texts for w in path_words(path))

    @cached_property
    def sources(self) -> dict[str, str]:
        """The texts of Python sources by their paths."""
        files = [f for folder in SOURCE_FOLDERS for f in (self.root / folder).rglob("*.py")]
        return {str(f.relative_to(self.root)): f.read_text() for f in files}

    def names(self, path: str, lines: set[int] | None) -> dict[str, float]:
        """The names that a change stands for, with their weights."""
        file = self.root / path
        text = file.read_text(errors="replace") if file.is_file() else ""
        if not path.endswith(".py"):
            return dict.fromkeys(words(" ".join(re.findall(r"\b\w+(?=\()|\"[\w.]+\"", text))), 1.0)
        defined = list(definitions(text))
        touched = [d for d in defined if lines is None or any(d.first <= n <= d.last for n in lines)] or defined
        changed = {n for d in touched for n in d.names}
        users = _users(defined, changed)
        weights = dict.fromkeys((n for d in defined for n in d.names), ELSEWHERE)
        weights |= dict.fromkeys(self._importing(path, changed | users), IMPORTER)
        weights |= dict.fromkeys((s for d in touched for s in d.strings), IMPORTER)
        return weights | dict.fromkeys(users, USER) | dict.fromkeys(changed, CHANGED)

    def _importing(self, path: str, names: set[str]) -> set[str]:
        """Names of what uses ``names`` in files that import the module ``path``."""
        module = Path(path).with_suffix("").parts
        dotted = ".".join(module[module.index("src") + 1 :] if "src" in module else module)
        parent, _, last = dotted.rpartition(".")
        imports = re.compile(rf"from {re.escape(dotted)} import|from {re.escape(parent)} import .*\b{last}\b")
        files = [text for other, text in self.sources.items() if other != path and imports.search(text)][:IMPORTERS]
        return {n for text in files for d in definitions(text) if d.words & names for n in d.names}

    def _shared(self, weights: Mapping[str, float], found: set[str]) -> float:
        """How much of weighted names is among ``found``, rare ones before common ones."""
        common = weights.keys() & found
        return sum(weights[w] * math.log(len(self.texts) / (self.count[w] or 1)) for w in common)

    def _mirrors(self, path: str, test: str) -> float:
        common = path_words(path) & path_words(test)
        return PATH * sum(math.log(len(self.texts) / self.path_count[w]) for w in common)

    def files(self, changes: Changes) -> dict[str, float]:
        """The tests' files, closest first; a changed one is closest."""
        scores: Counter[str] = Counter()
        for path, lines in changes.items():
            weights = self.names(path, lines)
            for test, found in self.words.items():
                scores[test] += self._shared(weights, found) + self._mirrors(path, test)
            if path in self.words:
                scores[path] = math.inf
        return dict(scores.most_common())

    def order(self, changes: Changes, count: int) -> dict[str, dict[str, float]]:
        """Return the ``count`` closest files, changed ones beyond that, and of each how close its functions are."""
        weights: Counter[str] = Counter()
        for path, lines in changes.items():
            weights |= Counter(self.names(path, lines))
        chosen = [file for i, file in enumerate(self.files(changes)) if i < count or file in changes]
        return {file: self._functions(file, weights) for file in chosen}

    def _functions(self, file: str, weights: Mapping[str, float]) -> dict[str, float]:
        defined = [(name, d) for d in definitions(self.texts[file]) for name in d.names if name.startswith("test")]
        return {name: self._shared(weights, d.words) for name, d in defined}
