"""Functions with one implementation for each kind of target, chosen when they are called.

>>> @generic_func
... def schedule_thing(outs):
...     return "default"
>>> @schedule_thing.register("arm_cpu")
... def schedule_thing_arm_cpu(outs):
...     return "for ARM"

A call looks through the keys of the current target (for a Raspberry Pi ``arm_cpu``, then ``cpu``) for an
implementation, and takes the default if no key has one or if there is no current target. Operators' strategies
(``relay.op.strategy``) and alterations (``topi.nn.conv2d_alter_layout``) are such functions: a target plugs in by
registering for a key of its own. Modules with many implementations are imported when their key is first looked up
(``implemented_in``).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from tilewright.ir.errors import TilewrightError
from tilewright.target.own_code import is_own
from tilewright.target.target import Target

_implemented_in: dict[str, tuple[str, ...]] = {}  # names of modules by key


def implemented_in(key: str, *modules: str) -> None:
    """Name the modules that register implementations for a key: they are imported when it is first looked up."""
    _implemented_in[key] = (*_implemented_in.get(key, ()), *modules)


def _load_implementations(key: str) -> None:
    # Import asked again is cheap, and waits where another thread is not done with the module.
    for module in _implemented_in.get(key, ()):
        importlib.import_module(module)


def load_all_implementations() -> None:
    """Import the modules of all keys, which register schedules' templates too."""
    for key in list(_implemented_in):
        _load_implementations(key)


class GenericFunc:
    """A function that dispatches on the keys of the current target.

    ``fdefault`` is the default, ``dispatch_dict`` the implementations by key. With ``replaceable``, registering a key
    again replaces its function; otherwise that is an error unless ``override=True``. ``foreign_keys`` are the keys for
    which others than Tilewright have implementations, and "" where they replaced a default.
    """

    foreign_keys: ClassVar[set[str]] = set()

    def __init__(self, name: str, default: Callable[..., Any] | None = None, replaceable: bool = False) -> None:
        self.name, self.replaceable = name, replaceable
        self.fdefault: Callable[..., Any] | None = None
        self.dispatch_dict: dict[str, Callable[..., Any]] = {}
        if default is not None:
            self.set_default(default)

    def set_default(self, func: Callable[..., Any], allow_override: bool = False) -> None:
        """Set the function that is called when no key of the target has an implementation."""
        if self.fdefault is not None:
            if not allow_override:
                raise TilewrightError(f"{self.name} has a default already; pass allow_override=True to replace it")
            if not is_own(func):
                GenericFunc.foreign_keys.add("")
        self.fdefault = func
        functools.update_wrapper(self, func, updated=())

    def register(
        self,
        key: str | Iterable[str] | Callable[..., Any] | None = None,
        func: Callable[..., Any] | str | Iterable[str] | None = None,
        override: bool | None = None,
        *,
        key_list: str | Iterable[str] | None = None,
        allow_override: bool | None = None,
    ) -> Any:
        """Register an implementation for one key or several.

        A decorator, ``@f.register("cuda")``, or a call: ``f.register("cuda", func)``, or, as TVM's native functions
        take it, ``f.register(func, ["cuda", "gpu"])``.

        Parameters
        ----------
        key, key_list : the key or keys
        func : the implementation; without it, a decorator is returned
        override, allow_override : whether to replace what is registered for a key; else a second one is an error

        Raises
        ------
        TilewrightError : without a key, or if a key has an implementation that is not to be replaced
        """
        if callable(key):
            key, func = (func if not callable(func) else None), key
        keys = key_list if key is None else key
        chosen = [keys] if isinstance(keys, str) else list(keys or ())
        if not chosen:
            raise TilewrightError(f"{self.name}: say for which target key the implementation is, such as 'cuda'")
        replace = next((flag for flag in (override, allow_override) if flag is not None), self.replaceable)

        def add(implementation: Callable[..., Any]) -> Callable[..., Any]:
            for name in chosen:
                _load_implementations(name)
                self._add(name, implementation, replace)
            return implementation

        return add(func) if callable(func) else add

    def provide(self, key: str, func: Callable[..., Any] | None = None) -> Any:
        """Register an implementation in a module that ``implemented_in`` names for the key, or in one that it imports.

        A decorator, or a call with ``func``. It does not import the other modules of the key, as ``register`` does.
        """

        def add(implementation: Callable[..., Any]) -> Callable[..., Any]:
            self._add(key, implementation, self.replaceable)
            return implementation

        return add if func is None else add(func)

    def _add(self, key: str, implementation: Callable[..., Any], replace: bool) -> None:
        if key in self.dispatch_dict and not replace:
            raise TilewrightError(f"{self.name} has an implementation for {key!r} already; pass override=True")
        self.dispatch_dict[key] = implementation
        if not is_own(implementation):
            GenericFunc.foreign_keys.add(key)

    def get(self, target: Target | None = None) -> Callable[..., Any]:
        """The implementation for ``target``, or for the current one."""
        chosen = target or Target.current()
        for key in chosen.keys if chosen is not None else ():
            _load_implementations(key)
            if key in self.dispatch_dict:
                return self.dispatch_dict[key]
        if self.fdefault is None:
            known = ", ".join(sorted(self.dispatch_dict)) or "none"
            raise TilewrightError(f"{self.name} has no implementation for target {chosen}; there is one for {known}")
        return self.fdefault

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the implementation for the current target."""
        return self.get()(*args, **kwargs)

    def __repr__(self) -> str:
        return f"GenericFunc({self.name}, keys={sorted(self.dispatch_dict)})"


_named: dict[str, GenericFunc] = {}


def generic_func(fdefault: Callable[..., Any]) -> GenericFunc:
    """Decorator: the function is the default of a :class:`GenericFunc`."""
    return GenericFunc(fdefault.__name__, fdefault)


def get_native_generic_func(name: str) -> GenericFunc:
    """Return the generic function of that name, creating it if there is none."""
    if name not in _named:
        _named[name] = GenericFunc(name, replaceable=True)
    return _named[name]


def override_native_generic_func(func_name: str) -> Callable[[Callable[..., Any]], GenericFunc]:
    """Decorator: the function becomes the default of the generic function ``func_name``."""

    def decorate(default: Callable[..., Any]) -> GenericFunc:
        generic = get_native_generic_func(func_name)
        generic.set_default(default, allow_override=True)
        return generic

    return decorate
