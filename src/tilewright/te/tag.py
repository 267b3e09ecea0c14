"""Tags: kinds of operations, as text that schedules look up ("elemwise", "conv2d_nchw", ...)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tilewright.ir.errors import TilewrightError

ELEMWISE = "elemwise"
BROADCAST = "broadcast"

_state = threading.local()
_F = TypeVar("_F", bound=Callable[..., Any])


class NestedTagError(TilewrightError, ValueError):
    """A tag scope inside another one."""


class TagScope:
    """Tags every operation declared inside a ``with``, or inside a decorated function."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    @classmethod
    def get_current(cls) -> TagScope | None:
        """The scope that is in force in this thread."""
        tag = current_tag()
        return None if tag is None else cls(tag)

    def __enter__(self) -> TagScope:
        if current_tag() is not None:
            raise NestedTagError(f"tag scope {self.tag!r} inside tag scope {current_tag()!r}; tag scopes do not nest")
        _state.tag = self.tag
        return self

    def __exit__(self, *exc: object) -> None:
        _state.tag = None

    def __call__(self, function: _F) -> _F:
        @functools.wraps(function)
        def tagged(*args: Any, **kwargs: Any) -> Any:
            with TagScope(self.tag):
                return function(*args, **kwargs)

        return tagged  # type: ignore[return-value]


def tag_scope(tag: str) -> TagScope:
    """Scope whose operations get ``tag``: ``with te.tag_scope("matmul"): ...`` or ``@te.tag_scope("matmul")``."""
    return TagScope(tag)


def current_tag() -> str | None:
    """The tag of the scope in force, or None."""
    return getattr(_state, "tag", None)


def resolve_tag(tag: str) -> str:
    """The tag of a new operation: its own or the scope's, not both."""
    scope = current_tag()
    if scope is None:
        return tag
    if tag:
        raise TilewrightError(f"the operation has tag {tag!r} and stands in tag scope {scope!r}; give only one")
    return scope
