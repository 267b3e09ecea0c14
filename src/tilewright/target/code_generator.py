"""Code generators: their interface, and their registration by target kind.

The code generator of a target kind is the global function ``target.build.KIND``, as in TVM 0.8. It takes an IRModule of
lowered functions and the target, and returns a runtime module::

    @tvm.register_func("target.build.my_kind")
    def build_my_kind(mod, target):
        return tvm.runtime.create_module("my_kind", ...)

One that is worth starting while other functions are still being lowered, because it compiles in other processes, takes
them one by one. It is a class with the methods of :class:`CodeGenerator`, registered by
:func:`register_code_generator`, which makes ``target.build.KIND`` of it::

    @register_code_generator("my_kind")
    class MyGenerator:
        def __init__(self, target): ...
        def add(self, func): ...      # one lowered function
        def finish(self): ...         # -> runtime module

``llvm`` and ``c`` are such classes (``codegen/llvm/generator.py``, ``codegen/c/generator.py``).

A function comes as ``tvm.lower`` leaves it: tensors are parameters described by ``buffer_map``, the body has loops,
stores and loads of flat buffers. Its attributes ``global_symbol`` (the name that the module must know it by) and
``target`` are set. A generator whose functions have a C signature calls :func:`to_host_form`. Kernels split
off a function with thread axes (``tir.transform.SplitHostDevice``) have the attribute ``calling_conv`` = 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL, TARGET
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass
from tilewright.runtime.dtype import CUSTOM_TYPES
from tilewright.runtime.module import Module
from tilewright.runtime.plugins import load_plugins
from tilewright.runtime.registry import get_global_func, list_global_func_names, register_func
from tilewright.target.interfaces import has_unpacked_api, is_freestanding, workspace_alignment
from tilewright.target.kind import GROUP
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc
from tilewright.tir.transform.lower_custom_datatypes import LowerCustomDatatypes
from tilewright.tir.transform.lower_intrin import LowerIntrin
from tilewright.tir.transform.lower_tvm_builtin import LowerTVMBuiltin
from tilewright.tir.transform.make_packed_api import MakePackedAPI
from tilewright.tir.transform.make_unpacked_api import MakeUnpackedAPI
from tilewright.tir.transform.pool_allocations import pool_allocations

_PREFIX = "target.build."


class CodeGenerator(Protocol):
    """Makes one runtime module from functions added one at a time; see the head of this file."""

    def add(self, func: PrimFunc) -> None:
        """Add a lowered function; its code may be generated from now on."""

    def finish(self) -> Module:
        """The module of all functions that were added; the first is its entry."""


class _Streaming:
    """``target.build.KIND`` of a code generator that takes functions one by one."""

    def __init__(self, make: Callable[[Target], CodeGenerator]) -> None:
        self.make = make

    def __call__(self, mod: IRModule, target: Target | str) -> Module:
        chosen = Target(target)
        generator = self.make(chosen)
        for func in functions_of(mod, chosen):
            generator.add(func)
        return generator.finish()


class _WholeModule:
    """A code generator over a function that takes all functions at once."""

    def __init__(self, build: Callable[[IRModule, Target], Any], target: Target) -> None:
        self._build, self._target, self._mod = build, target, IRModule()

    def add(self, func: PrimFunc) -> None:
        self._mod[GLOBAL_SYMBOL.of(func)] = func

    def finish(self) -> Module:
        made = self._build(self._mod, self._target)
        if not isinstance(made, Module):
            name = f"{_PREFIX}{self._target.kind.name}"
            raise TilewrightError(f"{name} returned a {type(made).__name__}; a code generator returns a runtime.Module")
        return made


def register_code_generator(
    kind: str, make: Callable[[Target], CodeGenerator] | None = None, override: bool = False
) -> Any:
    """Register a code generator that takes functions one by one, as the global function ``target.build.KIND``.

    Parameters
    ----------
    kind : the target kind's name
    make : called with the target, returns a :class:`CodeGenerator` for one module; without it a decorator is returned
    override : whether to replace the kind's earlier code generator

    Raises
    ------
    TVMError : the kind has a code generator, and ``override`` is false
    """

    def register(maker: Callable[[Target], CodeGenerator]) -> Callable[[Target], CodeGenerator]:
        register_func(f"{_PREFIX}{kind}", _Streaming(maker), override)
        return maker

    return register if make is None else register(make)


def code_generator(target: Target) -> CodeGenerator:
    """A new code generator for one module of ``target``.

    Raises
    ------
    UnsupportedError : the target's kind has none
    """
    build = find_code_generator(target)
    return build.make(target) if isinstance(build, _Streaming) else _WholeModule(build, target)


def find_code_generator(target: Target) -> Callable[[IRModule, Target], Any]:
    """The function ``target.build.KIND``; raises UnsupportedError when the target's kind has none."""
    kind = target.kind.name
    found = get_global_func(f"{_PREFIX}{kind}", allow_missing=True)
    if found is None:
        load_plugins(GROUP)  # the kind is known, and its code generator may be an installed package's
        found = get_global_func(f"{_PREFIX}{kind}", allow_missing=True)
    if found is None:
        names = [name for name in list_global_func_names() if name.startswith(_PREFIX)]
        known = ", ".join(name.removeprefix(_PREFIX) for name in names)
        raise UnsupportedError(
            f"there is no code generator for the target kind {kind!r}; there is one for {known}. Import the package "
            f'that has it, or register one: tvm.register_func("{_PREFIX}{kind}", f), where f(mod, target) returns a '
            "runtime.Module"
        )
    return found.python or found


def functions_of(mod: IRModule, target: Target, override: bool = False) -> list[PrimFunc]:
    """The functions of ``mod``, with the attributes ``global_symbol`` and ``target``.

    Parameters
    ----------
    mod : functions of TIR
    target : the target of those that do not name their own, or with ``override`` of all

    Raises
    ------
    TilewrightError : one is a function of Relay
    """
    functions = []
    for var, func in mod.items():
        if not isinstance(func, PrimFunc):
            raise TilewrightError(
                f"{var.name_hint} is a {type(func).__name__}, not a TIR function; build a Relay module with relay.build"
            )
        named = func if GLOBAL_SYMBOL.has(func) else func.with_attr(GLOBAL_SYMBOL.key, var.name_hint)
        own = target if override else Target(TARGET.get(named, target))
        functions.append(named.with_attr(TARGET.key, own))
    return functions


def to_host_form(func: PrimFunc, before: Sequence[Pass] = ()) -> list[PrimFunc]:
    """Lower ``func`` to the form for C-like code: a C signature, and calls of the runtime.

    The signature is the packed one, or with ``-unpacked-api`` of the target in its attribute pointers to data. Without
    a runtime (``options.is_freestanding``) large allocations become parts of a buffer that the caller passes.

    Parameters
    ----------
    func : a lowered function
    before : passes that the code generator wants first
    """
    custom = [LowerCustomDatatypes()] if CUSTOM_TYPES else []
    target = TARGET.get(func)
    unpacked = target is not None and has_unpacked_api(target)
    api = MakeUnpackedAPI() if unpacked else MakePackedAPI()
    if target is not None and is_freestanding(target):
        func = pool_allocations(func, workspace_alignment(target))
    mod = IRModule()
    mod[GLOBAL_SYMBOL.of(func)] = func
    for step in [*before, api, *custom, LowerTVMBuiltin(), LowerIntrin()]:
        mod = step(mod)
    return [item for item in mod.functions.values() if isinstance(item, PrimFunc)]
