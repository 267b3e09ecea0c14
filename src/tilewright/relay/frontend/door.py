"""Front ends by file suffix and by the type of an object, for ``tilewright compile`` and ``import_model``.

A front end is a function ``load(source, shape=None, ...)`` that returns a module and its parameters' arrays by name,
as ``from_onnx`` does. ``source`` is a path, or an object of a type that the front end states::

    register_frontend("layers", load, suffixes=[".layers"], types=["layers_front_end.Network"])
    mod, params = import_model("net.layers")

An installed package registers its own by an entry point. The group is loaded when no known front end takes the source;
docs/frontends.md has a whole package::

    [project.entry-points."tilewright.frontends"]
    layers = "layers_front_end:register"
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.runtime.plugins import load_plugins, plugin_failures

GROUP = "tilewright.frontends"
_HOW_TO_ADD = (
    "Name one (--frontend, frontend=) for a file of another suffix; a package adds others under the entry-point group "
    f"{GROUP} (docs/frontends.md)"
)
_NO_SUFFIX = ".onnx"  # how a file is read whose name has no suffix


class FrontEndError(TilewrightError, ValueError):
    """No front end takes a model, or the one that does is invalid."""


@dataclass(frozen=True)
class FrontEnd:
    """An importer: its name, its function, the suffixes of the files and the dotted names of the classes that it takes.

    Attributes
    ----------
    function : the function, or its place, ``package.module:function``, which ``load`` imports
    """

    name: str
    function: Callable[..., Any] | str
    suffixes: tuple[str, ...]
    types: tuple[str, ...]
    folders: tuple[str, ...] = ()

    @property
    def load(self) -> Callable[..., Any]:
        """Return the function that imports a model."""
        if not isinstance(self.function, str):
            return self.function
        module, _, name = self.function.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return found

    def __str__(self) -> str:
        return f"{self.name} ({', '.join([*self.suffixes, *self.types])})"

    def takes(self, files: bool) -> str:
        """Return its suffixes or its types, with its name; an empty text where it has none."""
        listed = self.suffixes if files else self.types
        return f"{', '.join(listed)} ({self.name})" if listed else ""


_front_ends: dict[str, FrontEnd] = {}


def register_frontend(
    name: str,
    load: Callable[..., Any] | str,
    *,
    suffixes: Sequence[str] = (),
    types: Sequence[type | str] = (),
    folders: Sequence[str] = (),
    override: bool = False,
) -> FrontEnd:
    """Register an importer.

    Args:
        name: its name in messages.
        load: called as ``load(source, **options)`` with options of ``import_model``; returns an ``IRModule`` and a
            mapping from names of main's parameters to arrays. ``"package.module:function"`` is imported when a model
            is.
        suffixes: endings of its files' names, such as ``".layers"``, in any case.
        types: classes of objects that it takes, or their dotted names, so that they need not be imported.
        folders: names of files, such as ``"saved_model.pb"``, by which it knows a folder as its own.
        override: replace a front end of the name, and take over suffixes and types of others.

    Raises:
        FrontEndError: it takes nothing, a suffix has no point, or another front end has the name, suffix or type.
    """
    if isinstance(suffixes, str) or isinstance(types, (str, type)):
        raise FrontEndError(f"the front end {name}: suffixes and types are lists")
    ends = tuple(suffix.lower() for suffix in suffixes)
    names = tuple(t if isinstance(t, str) else _name_of(t) for t in types)
    if not (ends or names) or not all(end.startswith(".") and len(end) > 1 for end in ends):
        raise FrontEndError(f"the front end {name} takes suffixes such as '.{name}', or types; found {suffixes!r}")
    for other in () if override else _front_ends.values():
        if other.name == name or {*other.suffixes, *other.types} & {*ends, *names}:
            raise FrontEndError(
                f"the front end {name} ({', '.join([*ends, *names])}) and {other} want the same; override=True replaces"
            )
    made = FrontEnd(name, load, ends, names, tuple(folders))
    _front_ends.pop(name, None)
    _front_ends[name] = made
    return made


def list_frontends() -> list[FrontEnd]:
    """Return the front ends, including those of installed packages, in the order of registration."""
    load_plugins(GROUP)
    return list(_front_ends.values())


def find_frontend(source: Any) -> FrontEnd | None:
    """Return the front end that takes a path or an object, also of installed packages, or None."""
    look = _of_path if isinstance(source, (str, os.PathLike)) else _of_object
    found = look(source)
    if found is None:
        load_plugins(GROUP, warn=False)  # frontend_of tells of failures
        found = look(source)
    return found


def frontend_of(source: Any) -> FrontEnd:
    """Return the front end that takes a path or an object; raise FrontEndError that lists the known ones."""
    found = find_frontend(source)
    if found is None and isinstance(source, (str, os.PathLike)) and os.path.isdir(source):
        files = [f"{file} ({f.name})" for f in _front_ends.values() for file in f.folders]
        known = ", ".join(files) or "nothing that is known"
        raise FrontEndError(f"{source}: no front end reads this folder; one would that holds {known}. {_HOW_TO_ADD}")
    if found is None and isinstance(source, (str, os.PathLike)) and "." not in os.path.basename(source):
        found = _of_path(_NO_SUFFIX)
    if found is None:
        failures = "".join(f"; {text}" for text in plugin_failures(GROUP))
        taken = [f.takes(isinstance(source, (str, os.PathLike))) for f in _front_ends.values()]
        raise FrontEndError(f"{_refusal(source)}; known are {', '.join(filter(None, taken))}. {_HOW_TO_ADD}{failures}")
    return found


def named_frontend(name: str) -> FrontEnd:
    """Return the front end of a name; raise FrontEndError that lists the names."""
    if name not in _front_ends:
        load_plugins(GROUP, warn=False)
    if name not in _front_ends:
        failures = "".join(f"; {text}" for text in plugin_failures(GROUP))
        raise FrontEndError(
            f"no front end is called {name!r}; there is {', '.join(_front_ends)}. {_HOW_TO_ADD}{failures}"
        )
    return _front_ends[name]


def import_model(
    source: Any, shape: Mapping[str, Sequence[Any]] | None = None, frontend: str | None = None, **options: Any
) -> tuple[IRModule, dict[str, Any]]:
    """Import a model by the front end that takes it.

    Args:
        source: the path of a file, or an object.
        shape: shapes of inputs by name, where they differ from the model's.
        frontend: the name of the front end; by default the one that takes the suffix or type.
        options: other options of that front end, such as ``dims`` of ONNX's; None and an empty mapping are left out.

    Returns:
        The module, and arrays of main's parameters by name.

    Raises:
        FrontEndError: no front end takes it, or that one fails or does not have such options.
        TilewrightError: the front end's error for the model.
    """
    front_end = frontend_of(source) if frontend is None else named_frontend(frontend)
    given = {key: value for key, value in {"shape": shape, **options}.items() if value is not None and value != {}}
    _check_options(front_end, given)
    try:
        made = front_end.load(source, **given)
    except (TilewrightError, OSError, MemoryError):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise FrontEndError(f"{_said(front_end)} failed on {_shown(source)}: {why}") from error
    if not (isinstance(made, tuple) and len(made) == 2):
        raise FrontEndError(f"{_said(front_end)} returned {type(made).__name__}; expected a module and parameters")
    mod, params = made
    if not isinstance(mod, IRModule) or not isinstance(params, Mapping):
        found = f"{type(mod).__name__} and {type(params).__name__}"
        raise FrontEndError(f"{_said(front_end)} returned {found}; expected an IRModule and a mapping of parameters")
    return mod, dict(params)


def _said(front_end: FrontEnd) -> str:
    return f"the front end {front_end.name} of {front_end.load.__module__}"


def _shown(source: Any) -> str:
    return str(source) if isinstance(source, (str, os.PathLike)) else f"a {_name_of(type(source))}"


def _refusal(source: Any) -> str:
    if not isinstance(source, (str, os.PathLike)):
        return f"no front end takes a {_name_of(type(source))}"
    suffix = "".join(os.path.splitext(source)[1:])
    return f"{source}: no front end reads files that end in {suffix!r}"


def _name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _of_path(source: str | os.PathLike[str]) -> FrontEnd | None:
    """Return the front end with the longest suffix that fits."""
    if os.path.isdir(source):
        held = set(os.listdir(source))
        return next((f for f in reversed(_front_ends.values()) if held & set(f.folders)), None)
    name = os.path.basename(os.fspath(source)).lower()
    fits = [(len(end), f) for f in reversed(_front_ends.values()) for end in f.suffixes if name.endswith(end)]
    return max(fits, key=lambda pair: pair[0])[1] if fits else None


def _of_object(source: Any) -> FrontEnd | None:
    """Return the front end for the nearest of the object's classes."""
    for cls in type(source).__mro__[:-1]:
        for front_end in reversed(_front_ends.values()):
            if _name_of(cls) in front_end.types:
                return front_end
    return None


def _check_options(front_end: FrontEnd, given: Mapping[str, Any]) -> None:
    params = list(inspect.signature(front_end.load).parameters.values())
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in params):
        return
    names = [p.name for p in params[1:]]
    if unknown := [key for key in given if key not in names]:
        takes = ", ".join(names) or "no options"
        raise FrontEndError(f"{_said(front_end)} does not take {', '.join(unknown)}; it takes {takes}")
