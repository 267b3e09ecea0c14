"""Functions with one implementation for each kind of target, chosen when they are called.

>>> @generic_func
... def schedule_thing(outs):
...     return "default"
>>> @schedule_thing.register("arm_cpu")
... def _(outs):
...     return "for ARM"

A call looks through the keys of the current target (``arm_cpu``, then ``cpu``) for an implementation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.target.target import Target


class GenericFunc:
    """A function that dispatches on the keys of the current target."""

    def __init__(self, name: str, default: Callable[..., Any] | None = None) -> None:
        self.name, self.default = name, default
        self.dispatch: dict[str, Callable[..., Any]] = {}
        if default is not None:
            functools.update_wrapper(self, default)

    def set_default(self, func: Callable[..., Any], allow_override: bool = False) -> None:
        """Set what is called when no key of the target has an implementation."""
        if self.default is not None and not allow_override:
            raise TilewrightError(f"{self.name} has a default already; pass allow_override=True to replace it")
        self.default = func

    def register(
        self,
        func_or_key: Callable[..., Any] | str | Iterable[str],
        key_list: Iterable[str] | str | None = None,
        allow_override: bool = False,
        override: bool = False,
    ) -> Any:
        """Register an implementation: ``register(func, keys)``, or a decorator ``register(keys)``."""
        if not callable(func_or_key):
            keys = [func_or_key] if isinstance(func_or_key, str) else list(func_or_key)
            return lambda func: self.register(func, keys, allow_override, override)
        keys = [key_list] if isinstance(key_list, str) else list(key_list or ())
        for key in keys:
            if key in self.dispatch and not (allow_override or override):
                raise TilewrightError(f"{self.name} has an implementation for {key!r} already; pass override=True")
            self.dispatch[key] = func_or_key
        return func_or_key

    def get(self, target: Target | None = None) -> Callable[..., Any]:
        """The implementation for ``target``, or for the current one."""
        chosen = target or Target.current()
        for key in chosen.keys if chosen is not None else ():
            if key in self.dispatch:
                return self.dispatch[key]
        if self.default is None:
            known = ", ".join(sorted(self.dispatch)) or "none"
            raise TilewrightError(f"{self.name} has no implementation for target {chosen}; there is one for {known}")
        return self.default

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the implementation for the current target."""
        return self.get()(*args, **kwargs)


_named: dict[str, GenericFunc] = {}


def generic_func(default: Callable[..., Any]) -> GenericFunc:
    """Decorator: the function is the default of a :class:`GenericFunc`."""
    return GenericFunc(default.__name__, default)


def get_native_generic_func(name: str) -> GenericFunc:
    """The generic function of that name, made now if there is none."""
    if name not in _named:
        _named[name] = GenericFunc(name)
    return _named[name]


def override_native_generic_func(func_name: str) -> Callable[[Callable[..., Any]], GenericFunc]:
    """Decorator: the function becomes the default of the generic function ``func_name``."""

    def decorate(default: Callable[..., Any]) -> GenericFunc:
        generic = get_native_generic_func(func_name)
        generic.set_default(default, allow_override=True)
        return generic

    return decorate
