#!/usr/bin/env python3
"""Which public names of TVM 0.8 are missing here, or take other parameters.

    git --git-dir=COPY_OF_APACHE_TVM --work-tree=SUITE checkout -f v0.8.0 -- python
    .venv/bin/python tests/compatibility/tvm_names.py SUITE/python/tvm [--under tvm.relay] [--all]

TVM is read, never imported: functions, classes, their methods, and what packages take from their modules. A name is
right here if ``tilewright`` has it at the same place and every parameter of TVM's can be given: by name, and by
position where TVM's can. More parameters than TVM's are fine. What is left out on purpose stands with its reason in
the table "Names" of docs/compatibility.md, as patterns (``tvm.micro*``); ``--all`` shows those too. The exit status
is 1 if anything else is missing or different.
"""

from __future__ import annotations

import argparse
import ast
import collections
import fnmatch
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"


@dataclass(frozen=True)
class Parameter:
    name: str
    optional: bool


@dataclass(frozen=True)
class Callable:
    """The parameters of a function that can be given by position, those by name only, and whether it takes any."""

    by_position: tuple[Parameter, ...]
    by_name: tuple[Parameter, ...]
    takes_any: bool


@dataclass(frozen=True)
class Class:
    """A class: its own methods (``__init__`` among them) and its bases as they are written."""

    methods: dict[str, Callable]
    bases: tuple[str, ...]


@dataclass
class Module:
    """A module of TVM's as its text tells: what it defines, and what it takes from others."""

    definitions: dict[str, Callable | Class | None] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    exported: frozenset[str] | None = None


def read_package(folder: Path) -> dict[str, Module]:
    """Every module under ``folder``, the package ``tvm``, by its dotted name."""
    modules = {}
    for path in sorted(folder.rglob("*.py")):
        parts = ("tvm", *path.relative_to(folder).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = _read_module(ast.parse(path.read_text()), name if is_package else name.rpartition(".")[0])
    return modules


def _read_module(tree: ast.Module, package: str) -> Module:
    module = Module()
    for node in _statements(tree.body):
        if isinstance(node, ast.FunctionDef):
            module.definitions[node.name] = _callable(node)
        elif isinstance(node, ast.ClassDef):
            methods = {
                f.name: _callable(f, bound=True)
                for f in node.body
                if isinstance(f, ast.FunctionDef) and (not f.name.startswith("_") or f.name == "__init__")
            }
            module.definitions[node.name] = Class(methods, tuple(ast.unparse(base) for base in node.bases))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    if target.id == "__all__" and isinstance(node.value, ast.List):
                        module.exported = frozenset(ast.literal_eval(node.value))
                    module.definitions[target.id] = None
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(node, package)
            if not source.startswith("tvm"):
                continue
            for alias in node.names:
                if alias.name == "*":
                    module.stars.append(source)
                else:
                    module.imports[alias.asname or alias.name] = (source, alias.name)
    return module


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under ``if`` and ``try`` among them."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _statements(node.body)
        else:
            yield node


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def _callable(node: ast.FunctionDef, bound: bool = False) -> Callable:
    """``node``'s parameters; what ``self`` or a decorator gives (``cfg`` of a template) is not the user's."""
    arguments = node.args
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
    required = len(names) - len(arguments.defaults)
    by_position = [Parameter(name, i >= required) for i, name in enumerate(names)]
    decorators = [ast.unparse(d) for d in node.decorator_list]
    if bound and "staticmethod" not in decorators:
        by_position = by_position[1:]
    if any("register_topi" in d for d in decorators) and by_position and by_position[0].name in ("cfg", "_"):
        by_position = by_position[1:]
    by_name = [
        Parameter(a.arg, d is not None) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return Callable(tuple(by_position), tuple(by_name), bool(arguments.vararg or arguments.kwarg))


def public_names(modules: dict[str, Module], name: str, seen: frozenset[str] = frozenset()) -> dict[str, object]:
    """What ``import name`` of TVM's gives a user: its definitions, and what it takes from modules of its package."""
    module = modules.get(name)
    if module is None or name in seen:
        return {}
    found: dict[str, object] = {}
    for star in module.stars:
        taken = public_names(modules, star, seen | {name})
        exported = modules[star].exported if star in modules else None
        found.update({k: v for k, v in taken.items() if exported is None or k in exported})
    for alias, (source, original) in module.imports.items():
        if source.startswith(name):  # a package's face; what a module imports for itself is its own matter
            found.setdefault(alias, public_names(modules, source, seen | {name}).get(original))
    found.update(module.definitions)
    return {k: v for k, v in found.items() if not k.startswith("_") or k == "__init__"}


# ------------------------------------------------------------------------------------------------------ comparing


@dataclass(frozen=True)
class Difference:
    name: str
    what: str


def compare(modules: dict[str, Module], under: str = "tvm") -> Iterator[Difference]:
    """What is not here as TVM 0.8 has it, in the modules whose names begin with ``under``; a name once, at its face."""
    told: dict[str, set[str]] = collections.defaultdict(set)
    for difference, module in _differences(modules, under):
        short = difference.name.removeprefix(f"{module}.")
        faces = [".".join(module.split(".")[:n]) for n in range(2, module.count(".") + 1)]
        if not any(short in told[face] for face in faces):
            told[module].add(short)
            yield difference


def _differences(modules: dict[str, Module], under: str) -> Iterator[tuple[Difference, str]]:
    """Every difference, with the module that was asked for it."""
    for name in modules:
        if not (name == under or name.startswith(f"{under}.")) or any(p.startswith("_") for p in name.split(".")):
            continue
        names = {k: v for k, v in public_names(modules, name).items() if v is not None}
        try:
            ours = importlib.import_module("tilewright" + name.removeprefix("tvm"))
        except ModuleNotFoundError:
            ours = _reach(name)
        own = {k: v for k, v in names.items() if k in modules[name].definitions}
        names = names if _is_package(modules, name) else own
        absent = []
        for key, theirs in names.items():
            there = getattr(ours, key, _MISSING)
            if there is _MISSING and not _is_package(modules, name):
                there = _in_face(name, key)
            if there is _MISSING and ours is None:
                absent.append(key)
                continue
            for difference in _compare_name(f"{name}.{key}", there, theirs):
                yield difference, name
        if len(absent) == len(names) and names:
            yield Difference(name, f"no such module ({', '.join(absent)})"), name
        else:
            for key in absent:
                yield Difference(f"{name}.{key}", "missing"), name


_MISSING = object()


def _is_package(modules: dict[str, Module], name: str) -> bool:
    return any(other.startswith(f"{name}.") for other in modules)


def _in_face(name: str, key: str) -> object:
    """``key`` in the packages around the module ``name``: where a module's names are shown, it may lie elsewhere."""
    while (name := name.rpartition(".")[0]) not in ("", "tvm"):
        try:
            face = importlib.import_module("tilewright" + name.removeprefix("tvm"))
        except ModuleNotFoundError:
            continue
        if hasattr(face, key):
            return getattr(face, key)
    return _MISSING


def _reach(name: str) -> object | None:
    """``tvm.a.b`` as an attribute of ``tilewright.a``: a module may be here under another name."""
    parent, _, last = name.rpartition(".")
    try:
        return getattr(importlib.import_module("tilewright" + parent.removeprefix("tvm")), last, None)
    except ModuleNotFoundError:
        return None


def _compare_name(name: str, ours: object, theirs: object) -> Iterator[Difference]:
    if ours is _MISSING:
        yield Difference(name, "missing")
    elif isinstance(theirs, Callable):
        yield from _compare_callable(name, ours, theirs)
    elif isinstance(theirs, Class):
        for method, parameters in theirs.methods.items():
            if method == "__init__":
                yield from _compare_callable(name, ours, parameters)
            elif _is_field(ours, method):
                continue
            elif not hasattr(ours, method):
                yield Difference(f"{name}.{method}", "missing")
            else:
                static = inspect.getattr_static(ours, method)
                if isinstance(static, property) or not callable(getattr(ours, method)):
                    continue
                bound = inspect.isfunction(static) and inspect.isclass(ours)
                yield from _compare_callable(f"{name}.{method}", getattr(ours, method), parameters, skip=bound)


def _is_field(cls: object, name: str) -> bool:
    """Whether a class declares the field ``name`` without a value: objects have it."""
    return inspect.isclass(cls) and any(name in vars(base).get("__annotations__", {}) for base in cls.__mro__)


def _compare_callable(name: str, ours: object, theirs: Callable, skip: bool = False) -> Iterator[Difference]:
    if isinstance(ours, ModuleType) or not callable(ours):
        yield Difference(name, f"is no function here but {type(ours).__name__}")
        return
    try:
        signature = inspect.signature(ours)
    except (ValueError, TypeError):
        return  # of C
    parameters = list(signature.parameters.values())[1 if skip else 0 :]
    if parameters and parameters[0].name in ("cfg", "_") and hasattr(ours, "__wrapped__"):
        del parameters[0]  # the decorator of a template gives it, as TVM's does
    kinds = {p.kind for p in parameters}
    if inspect.Parameter.VAR_POSITIONAL in kinds and inspect.Parameter.VAR_KEYWORD in kinds:
        return
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    any_name, any_position = inspect.Parameter.VAR_KEYWORD in kinds, inspect.Parameter.VAR_POSITIONAL in kinds
    # Spans of TIR are not kept (docs/compatibility.md); nobody gives them.
    is_visit = name.rpartition(".")[2].startswith("visit_")  # overridden and called by position
    wanted = [
        p.name
        for p in (*theirs.by_position, *theirs.by_name)
        if not (is_visit or p.name.startswith("_") or p.name == "span")
    ]
    missing = [] if any_name else [n for n in wanted if n not in named]
    if missing and not any_position:
        yield Difference(name, f"takes no {', '.join(missing)}")
        return
    for at, p in enumerate(theirs.by_position):
        if at >= len(positional):
            if not (any_position or p.name == "span"):
                yield Difference(name, f"takes {p.name} by name only")
                return
            break
        if p.name == "span":
            continue
        if positional[at].name != p.name and not any_position and p.name in wanted:
            yield Difference(name, f"has {positional[at].name} where TVM's has {p.name}")
            return
        if p.optional and positional[at].default is inspect.Parameter.empty:
            yield Difference(name, f"{p.name} must be given")
            return
    theirs_names, covered = set(wanted), positional[: len(theirs.by_position)]
    for p in parameters:
        if (
            p.name not in theirs_names
            and p not in covered
            and p.default is inspect.Parameter.empty
            and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
            and not theirs.takes_any
            and not any_position
        ):
            yield Difference(name, f"wants {p.name} too")
            return


def exceptions(document: Path = DOCUMENT) -> dict[str, str]:
    """What the table under the heading "Names" leaves out: reasons by patterns of names."""
    section = document.read_text().partition("\n## Names\n")[2].partition("\n## ")[0]
    found = {}
    for names, reason in re.findall(r"^\| (`tvm[^|]*) \| ([^|]+) \|$", section, re.MULTILINE):
        for pattern in re.findall(r"`([^`]+)`", names):
            found[pattern] = reason.strip()
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="the folder python/tvm of a checkout of TVM 0.8")
    parser.add_argument("--under", default="tvm", help="only this module and those in it")
    parser.add_argument("--all", action="store_true", help="what is left out on purpose too")
    options = parser.parse_args(arguments)
    left_out = exceptions()
    used: collections.Counter[str] = collections.Counter()
    count = 0
    for difference in compare(read_package(options.package), options.under):
        pattern = next((p for p in left_out if fnmatch.fnmatchcase(difference.name, p)), None)
        if pattern is not None:
            used[pattern] += 1
        count += pattern is None
        if pattern is None or options.all:
            print(f"{difference.name}: {difference.what}" + (f" ({left_out[pattern]})" if pattern else ""))
    print(f"{count} missing or different, {sum(used.values())} left out for {len(used)} reasons")
    if options.under == "tvm":
        for pattern in left_out.keys() - used.keys():
            print(f"nothing is left out by {pattern}: delete its line in {os.path.relpath(DOCUMENT)}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
