"""Code of external functions, made by other code generators, and how it becomes part of the library.

``relay.ext.NAME``, a global function, is called with each typed function that has ``Compiler="NAME"``. It returns a
runtime module with a packed function named ``global_symbol`` of the arguments, then the results, with tuples flattened.
``relay.ext.NAME.constant_updater(func, symbol)`` may return constants by name; without it they are those of the
function, ``SYMBOL_const_0`` and so on.

A module may request constants by two functions without arguments: ``get_symbol()``, and ``get_const_vars()``, their
names; a C source module is created with both. The constants are stored in a module of type ``metadata`` that imports
all others, and are passed once, before the function is first called, as arguments of ``__init_SYMBOL``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.module import IRModule
from tilewright.relay.backend.json_serializer import constant_names
from tilewright.relay.backend.lowered import is_external
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import COMPILER
from tilewright.relay.op.contrib.register import load_compiler
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import NDArray, compact
from tilewright.runtime.packed_func import PackedFunc
from tilewright.runtime.registry import get_global_func, need_global_func


@dataclass
class ExternalCode:
    """Modules of external functions, the constants that they request, and the names of these by symbol."""

    modules: list[Module] = field(default_factory=list)
    constants: dict[str, NDArray] = field(default_factory=dict)
    wanted: dict[str, list[str]] = field(default_factory=dict)

    def link(self, library: Module) -> Module:
        """Return the library of the host's code together with these modules; the host's code comes first."""
        if not self.modules:
            return library
        pairs = [item for pair in self.constants.items() for item in pair]
        symbols = [item for name, wanted in self.wanted.items() for item in (name, len(wanted), *wanted)]
        create = need_global_func("runtime.MetadataModuleCreate")
        whole: Module = create(len(self.constants), *pairs, len(self.wanted), *symbols)
        for module in (library, *self.modules):
            whole.import_module(module)
        return whole


def compile_external(lowered: IRModule) -> ExternalCode:
    """Compile the external functions of a lowered module.

    Raises
    ------
    UnsupportedError : one of them has no code generator
    TilewrightError : a code generator fails, or does not return a module with the function
    """
    code = ExternalCode()
    for var, func in lowered.items():
        if is_external(func):
            assert isinstance(func, Function)
            module = _generated(func, var.name_hint)
            if module not in code.modules:
                code.modules.append(module)
            _take_constants(code, func, module, var.name_hint)
    return code


def _generated(func: Function, symbol: str) -> Module:
    name = f"relay.ext.{COMPILER.of(func)}"
    generator = get_global_func(name, allow_missing=True)
    if generator is None:
        load_compiler(COMPILER.of(func))
        generator = get_global_func(name, allow_missing=True)
    if generator is None:
        raise UnsupportedError(
            f"@{symbol} is for the external compiler {COMPILER.of(func)!r}, and there is no global function "
            f"{name} that makes its code; import the package that registers it, or leave its operators unpartitioned"
        )
    module = _called(name, generator, symbol, func)
    if not isinstance(module, Module):
        raise TilewrightError(f"{name} returned a {type(module).__name__} for @{symbol}; expected a runtime module")
    code = module.compiled_code  # asked for its names: C source is not compiled for that
    found = symbol in code.function_names() if code is not None else module.implements_function(symbol)
    if not found:
        raise TilewrightError(f"the module that {name} gave for @{symbol} has no function of that name")
    return module


def _called(name: str, function: PackedFunc, symbol: str, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        raise TilewrightError(f"{name} failed on @{symbol}: {type(error).__name__}: {error}") from error


def _take_constants(code: ExternalCode, func: Function, module: Module, symbol: str) -> None:
    """Record the constants that the function's module requests."""
    asking, wanted = _asked_for(module)
    if not wanted or asking in code.wanted:
        return
    constants = _constants_of(func, symbol)
    missing = [name for name in wanted if name not in constants]
    if missing:
        known = ", ".join(constants) or "none"
        raise TilewrightError(
            f"the module of @{symbol} asks for the constant {missing[0]!r}; the function has: {known}. "
            f"relay.ext.{COMPILER.of(func)}.constant_updater may return others"
        )
    code.wanted[asking] = wanted
    code.constants |= {name: constants[name] for name in wanted}


def _asked_for(module: Module) -> tuple[str, list[str]]:
    """Return the symbol for which a module requests constants, and their names."""
    compiled = module.compiled_code
    if compiled is not None:
        return next(iter(compiled.function_names()), ""), list(getattr(compiled, "const_vars", ()))
    if not (module.implements_function("get_symbol") and module.implements_function("get_const_vars")):
        return "", []
    names = module["get_const_vars"]()
    names = names.splitlines() if isinstance(names, str) else names  # modules in C have no lists
    return str(module["get_symbol"]()), [str(name) for name in names]


def _constants_of(func: Function, symbol: str) -> dict[str, NDArray]:
    """Return the constants of an external function by name: those of its ``constant_updater``, else numbered."""
    name = f"relay.ext.{COMPILER.of(func)}.constant_updater"
    updater = get_global_func(name, allow_missing=True)
    if updater is None:
        return {constant: compact(node.data) for node, constant in constant_names(func, symbol).items()}
    given = _called(name, updater, symbol, func, symbol)
    if not isinstance(given, Mapping):
        raise TilewrightError(f"{name} returned a {type(given).__name__} for @{symbol}; expected arrays by name")
    return {str(key): compact(value) if isinstance(value, NDArray) else value for key, value in given.items()}
