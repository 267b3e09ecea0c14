"""Pass infrastructure: ``PassContext``, ``Sequential``, and decorators that make passes of functions.

A pass takes an ``IRModule`` and returns a new one. ``PassContext`` decides which passes run (``opt_level``,
``required_pass``, ``disabled_pass``), holds options (``config``) and instruments.
"""

from __future__ import annotations

import copy
import functools
import importlib
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from tilewright.ir.budget import check_budget
from tilewright.ir.errors import TilewrightError, did_you_mean
from tilewright.ir.expr import BaseFunc
from tilewright.ir.function_attributes import SKIP_OPTIMIZATION
from tilewright.ir.instrument import PassInstrument
from tilewright.ir.module import IRModule
from tilewright.runtime.error import TVMError
from tilewright.runtime.registry import get_global_func

_PACKAGES = Path(__file__).parents[1]


@dataclass(frozen=True)
class PassInfo:
    """The lowest opt level at which a pass runs, its name, and the passes that ``Sequential`` runs right before it."""

    opt_level: int
    name: str
    required: Sequence[str] = ()


@dataclass(frozen=True)
class ConfigOption:
    """A declared option of ``PassContext(config={name: value})``."""

    name: str
    type: type
    default: Any
    doc: str
    fields: Mapping[str, Any] | None = None


class OptionError(TilewrightError, AttributeError):
    """An undeclared name in ``PassContext(config={...})``, or a value of another type."""


class OptionFields(dict[str, Any]):
    """The value of an option that has fields: ``config["tir.UnrollLoop"].auto_max_step``, or as a dictionary."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"there is no field {name!r}; there are {', '.join(self)}")
        return self[name]


HIGHEST_OPT_LEVEL = 4


@contextmanager
def reported_as_tvm_error(where: str) -> Iterator[None]:
    """Convert a bare RuntimeError from a pass or an instrument to TVMError, with its origin, as in TVM 0.8.

    Errors of any other type pass as they are.
    """
    try:
        yield
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        raise TVMError(f"{where}: {error}") from error


class PassContext:
    """Options in force while passes run; used as a context manager, the innermost one counts.

    ``opt_level`` is from 0 to 4; ``required_pass`` and ``disabled_pass`` are names of passes that run whatever the
    level, or not at all; ``config`` holds declared options. TilewrightError for any other value.
    """

    options: ClassVar[dict[str, ConfigOption]] = {}
    everywhere: ClassVar[list[PassInstrument]] = []  # observe every pass, whatever the context: for tests and debugging
    _local: ClassVar[threading.local] = threading.local()

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[PassInstrument] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.instruments: list[PassInstrument] | None = None if instruments is None else list(instruments)
        self.opt_level = _checked_level(opt_level)
        self.required_pass = _checked_names("required_pass", required_pass)
        self.disabled_pass = _checked_names("disabled_pass", disabled_pass)
        if config is not None and not isinstance(config, Mapping):
            raise TilewrightError(f"config is a mapping of options to values, not {type(config).__name__} {config!r}")
        self.config = {name: self._checked(name, value) for name, value in (config or {}).items()}

    @classmethod
    def register_option(
        cls, name: str, type: type, default: Any, doc: str, fields: Mapping[str, Any] | None = None
    ) -> None:
        """Declare a config option; ``fields`` of a dictionary are the names it may have, with their defaults."""
        cls.options[name] = ConfigOption(name, type, default if fields is None else OptionFields(fields), doc, fields)

    @classmethod
    def declared(cls, name: str) -> ConfigOption:
        """Return the config option of this name; raises TilewrightError if there is none.

        The options ``NAME.*`` of a package ``tilewright.NAME`` are declared by its module ``options``, which is loaded
        when one of them is used; others (of plug-ins) by ``register_option`` before.
        """
        if name not in cls.options:
            _load_options(name.split(".")[0])
        option = cls.options.get(name)
        if option is None:
            _load_all_options()
            known = ", ".join(sorted(cls.options))
            raise OptionError(f"PassContext has no config option {name!r}; it has {known}")
        return option

    @classmethod
    def _checked(cls, name: str, value: Any) -> Any:
        option = cls.declared(name)
        if option.type is bool and value in (0, 1):
            return bool(value)
        if option.type is float and type(value) is int:
            return float(value)
        if not isinstance(value, option.type):
            raise OptionError(
                f"config option {name!r} takes {option.type.__name__}, got {type(value).__name__} {value!r}"
            )
        if option.fields is None:
            return value
        given: dict[str, Any] = dict(cast(Mapping[str, Any], value))
        unknown = sorted(set(given) - set(option.fields))
        if unknown:
            raise OptionError(
                f"config option {name!r} has no field {', '.join(unknown)}; it has {', '.join(option.fields)}"
            )
        return OptionFields({**option.fields, **given})

    @classmethod
    def current(cls) -> PassContext:
        """The innermost context of this thread; outside of all, the thread's own, with the defaults at first."""
        if not hasattr(cls._local, "stack"):
            cls._local.stack = [PassContext()]
        innermost: PassContext = cls._local.stack[-1]
        return innermost

    @classmethod
    def list_configs(cls) -> dict[str, dict[str, str]]:
        """Return every option of ``config`` with its type by TVM's name: ``{name: {"type": "IntImm"}}``."""
        _load_all_options()
        return {name: {"type": _TYPE_NAMES[option.type]} for name, option in sorted(cls.options.items())}

    def option(self, name: str) -> Any:
        """Value of a config option, or its default."""
        return self.config[name] if name in self.config else self.declared(name).default

    def __enter__(self) -> Self:
        PassContext.current()
        self._local.stack.append(self)
        try:
            self._enter_instruments()
        except BaseException:
            self._local.stack.pop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._exit_instruments(self.instruments or ())
        finally:
            self._local.stack.pop()

    @contextmanager
    def with_defaults(self, options: Mapping[str, Any], required: Sequence[str] = ()) -> Iterator[PassContext]:
        """Be in a copy of this context in which options that it does not set have other defaults, and passes run that
        it does not disable.
        """
        inner = copy.copy(self)
        inner.required_pass = self.required_pass | frozenset(required)
        inner.config = {name: self._checked(name, value) for name, value in options.items()} | self.config
        PassContext.current()
        self._local.stack.append(inner)
        try:
            yield inner
        finally:
            self._local.stack.pop()

    def override_instruments(self, instruments: Sequence[PassInstrument] | None) -> None:
        """Replace the instruments while the context is in force."""
        self._exit_instruments(self.instruments or ())
        self.instruments = None if instruments is None else list(instruments)
        self._enter_instruments()

    def active_instruments(self) -> Sequence[PassInstrument]:
        """Return the instruments that observe passes in this context."""
        own = self.instruments or []
        return [*own, *self.everywhere] if self.everywhere else own

    def _enter_instruments(self) -> None:
        """Notify each that the context is entered; if one fails, notify those before it of the exit."""
        entered: list[PassInstrument] = []
        try:
            for instrument in self.instruments or ():
                with reported_as_tvm_error(f"entering {instrument}"):
                    instrument.enter_pass_ctx()
                entered.append(instrument)
        except BaseException:
            self._exit_instruments(entered)
            self.instruments = None
            raise

    def _exit_instruments(self, instruments: Sequence[PassInstrument]) -> None:
        """Notify instruments of the exit; the first that fails ends this, and the context drops all."""
        try:
            for instrument in instruments:
                with reported_as_tvm_error(f"leaving {instrument}"):
                    instrument.exit_pass_ctx()
        except BaseException:
            self.instruments = None
            raise

    def pass_enabled(self, info: PassInfo) -> bool:
        """Return whether a pass of ``Sequential`` runs."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level


# How TVM names the types that options have.
_TYPE_NAMES = {bool: "IntImm", int: "IntImm", float: "FloatImm", str: "runtime.String", list: "Array", dict: "Map"}


def _load_all_options() -> None:
    for package in sorted(_PACKAGES.iterdir()):
        _load_options(package.name)


def _load_options(package: str) -> None:
    if (_PACKAGES / package / "options.py").exists():
        importlib.import_module(f"tilewright.{package}.options")


def _checked_level(level: Any) -> int:
    whole = hasattr(type(level), "__index__") and not isinstance(level, bool)
    if not whole or not 0 <= operator.index(level) <= HIGHEST_OPT_LEVEL:
        raise TilewrightError(f"opt_level is a whole number from 0 to {HIGHEST_OPT_LEVEL}, not {level!r}")
    return operator.index(level)


def _checked_names(what: str, names: Any) -> frozenset[str]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names or ()):
        raise TilewrightError(f'{what} is a list of names of passes, such as ["FuseOps"], not {names!r}')
    return frozenset(names or ())


class Pass:
    """A transformation of modules. Subclasses implement ``transform``."""

    info: PassInfo

    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The transformed module; ``mod`` itself stays as it is."""
        raise TypeError(f"{type(self).__name__} does not define transform()")

    def __call__(self, mod: IRModule) -> IRModule:
        """Run the pass with the instruments of the current context."""
        if not isinstance(mod, IRModule):
            raise TilewrightError(
                f"pass {self.info.name} takes an IRModule, got {type(mod).__name__}; wrap it with IRModule.from_expr"
            )
        ctx = PassContext.current()
        watched = bool(ctx.instruments or ctx.everywhere)
        if watched and not self._wanted(mod, ctx):
            return mod
        if watched:
            self._tell(ctx, "run_before_pass", mod)
        with reported_as_tvm_error(f"pass {self.info.name}"):
            result = self.transform(mod, ctx)
        check_budget(f"pass {self.info.name}")
        if watched:
            self._tell(ctx, "run_after_pass", result)
        return result

    def _wanted(self, mod: IRModule, ctx: PassContext) -> bool:
        """Return whether every instrument lets the pass run, or the context requires it."""
        with reported_as_tvm_error(f"should_run of pass {self.info.name}"):
            allowed = all(i.should_run(mod, self.info) for i in ctx.active_instruments())
        return allowed or self.info.name in ctx.required_pass

    def _tell(self, ctx: PassContext, event: str, mod: IRModule) -> None:
        with reported_as_tvm_error(f"{event} of pass {self.info.name}"):
            for instrument in ctx.active_instruments():
                getattr(instrument, event)(mod, self.info)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the object that a decorated class made, as TVM's passes have them."""
        instance = getattr(self.__dict__.get("function"), "__self__", None)
        if instance is None or name.startswith("__"):
            raise AttributeError(f"the pass {type(self).__name__} has no attribute {name!r}")
        return getattr(instance, name)

    def __str__(self) -> str:
        return f"Pass {self.info.name} at the optimization level {self.info.opt_level}"

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class ModulePass(Pass):
    """A pass that is a function of (module, context)."""

    function: Callable[[IRModule, PassContext], IRModule]
    info: PassInfo

    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Apply the function."""
        return self.function(mod, ctx)


@dataclass(frozen=True, repr=False)
class FunctionPass(Pass):
    """A pass that maps each function of one kind, in order, with a function of (function, module, context)."""

    function: Callable[[Any, IRModule, PassContext], BaseFunc]
    info: PassInfo
    func_type: type[BaseFunc] = BaseFunc

    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Apply the function to every function of ``func_type`` that is not marked ``SkipOptimization``."""
        result = mod.copy()
        for var, func in mod.items():
            if isinstance(func, self.func_type) and not SKIP_OPTIMIZATION.on(func):
                changed = self.function(func, result, ctx)
                if changed is not func:
                    result[var] = changed
        return result


@dataclass(frozen=True, repr=False)
class Sequential(Pass):
    """Runs passes in order, each if the context enables it.

    The passes that an enabled one requires run right before it, whatever their own levels, as in TVM 0.8. A pass that
    is called alone runs alone.
    """

    passes: Sequence[Pass] = ()
    opt_level: int = 0
    name: str = "sequential"
    required: Sequence[str] = ()
    info: PassInfo = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "info", PassInfo(self.opt_level, self.name, tuple(self.required)))

    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Run the enabled passes in order."""
        for item in self.passes:
            if ctx.pass_enabled(item.info):
                for name in item.info.required:
                    mod = _required(name, item.info)(mod)
                mod = item(mod)
        return mod


# The packages whose passes are known by these names, "" by no more than their own: InferType, tir.Simplify.
_PASSES_OF = {"": "relay", "relay": "relay", "relay._transform": "relay", "transform": "relay", "tir": "tir"}
_PASSES_OF |= {"relay.transform": "relay", "tir.transform": "tir"}


def _required(name: str, by: PassInfo) -> Pass:
    """The pass of a name, with its defaults, that another requires.

    It is one of Tilewright's, or what a global function ``relay._transform.NAME`` makes (``transform.NAME``, or
    NAME itself).

    Raises:
        TilewrightError: there is none of the name, or it cannot be made without arguments.
    """
    package, _, short = name.rpartition(".")
    known = importlib.import_module(f"tilewright.{_PASSES_OF[package]}.transform") if package in _PASSES_OF else None
    keys = (name, f"transform.{name}", f"relay._transform.{name}")
    make = getattr(known, short, None) or next(filter(None, (get_global_func(key, True) for key in keys)), None)
    if make is None:
        raise TilewrightError(
            f"the pass {by.name} requires {name!r}{did_you_mean(name, dir(known))}, and there is no pass of that name; "
            f"register a global function relay._transform.{short} that makes it"
        )
    try:
        made = make()
    except TypeError as error:
        raise TilewrightError(
            f"the pass {by.name} requires {name}, which cannot be made without arguments ({error}); "
            f"put it before {by.name} in the Sequential"
        ) from error
    if not isinstance(made, Pass):
        raise TilewrightError(f"the pass {by.name} requires {name!r}, which is no pass: {type(made).__name__}")
    return made


def module_pass(
    pass_func: Callable[..., Any] | None = None,
    opt_level: int = 0,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> Any:
    """Make a pass of a function ``(mod, ctx) -> mod``, or of a class with ``transform_module(self, mod, ctx)``.

    Usable as ``@module_pass(opt_level=1)`` on a function or class, as in TVM.
    """
    return _make_pass(pass_func, opt_level, name, required, "transform_module", ModulePass)


def function_pass(
    pass_func: Callable[..., Any] | None = None,
    opt_level: int = 0,
    name: str | None = None,
    required: Sequence[str] | None = None,
    func_type: type[BaseFunc] = BaseFunc,
    pass_type: type[FunctionPass] = FunctionPass,
) -> Any:
    """Make a pass of a function ``(func, mod, ctx) -> func``, or of a class with ``transform_function``."""
    make = functools.partial(pass_type, func_type=func_type)
    return _make_pass(pass_func, opt_level, name, required, "transform_function", make)


def _make_pass(
    target: Any,
    opt_level: int,
    name: str | None,
    required: Sequence[str] | None,
    method: str,
    make: Callable[..., Pass],
) -> Any:
    def build(func: Any) -> Any:
        info = PassInfo(opt_level, name or func.__name__, tuple(required or ()))
        if not isinstance(func, type):
            return make(func, info)

        @functools.wraps(func, updated=())
        def construct(*args: Any, **kwargs: Any) -> Pass:
            return make(getattr(func(*args, **kwargs), method), info)

        return construct

    return build if target is None else build(target)


def PrintIR(header: str = "", show_meta_data: bool = False) -> Pass:
    """A pass that prints the module to stderr, behind ``PrintIR(header):``, and passes it on."""

    def show(mod: IRModule, ctx: PassContext) -> IRModule:
        print(f"PrintIR({header}):\n{mod.astext(show_meta_data)}", file=sys.stderr)
        return mod

    return ModulePass(show, PassInfo(0, "PrintIR"))
