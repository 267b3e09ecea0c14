"""The key of a kernel: the digest of all that lowering a primitive function depends on.

That is the function, its kernel's name, the target and its processor, the options of the ``PassContext``, the tuning
records in force, and the source of the compiler. Where something takes part of which two processes cannot tell whether
it is the same, a kernel has no key and is lowered each time: functions of unknown shapes, instruments that watch
passes, options that hold functions, and computations, schedules and rules that are not Tilewright's own.
"""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

from tilewright.autotvm.task.choices import in_choice
from tilewright.autotvm.task.dispatcher import contexts_in_force
from tilewright.ir.op import Op
from tilewright.ir.structural import structural_hash
from tilewright.ir.transform import PassContext
from tilewright.relay.backend.symbolic import is_dynamic_function
from tilewright.relay.backend.te_compiler import (
    KernelNames,
    auto_scheduled,
    called_type,
    kernel_name_of,
    lower_primitive,
)
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import SLACK
from tilewright.relay.visitor import post_order
from tilewright.runtime.dtype import CUSTOM_TYPES
from tilewright.target.cache import cache_key, current_cache, is_plain
from tilewright.target.features import text_with_processor
from tilewright.target.generic_func import GenericFunc
from tilewright.target.kept_kernels import kept_kernel
from tilewright.target.own_code import is_own, source_digest
from tilewright.target.target import Target
from tilewright.tir.function import KeyedBody, PrimFunc

_RULE = ".FLowerIntrinsic"
_LOWERING = ("FTVMStrategy", "FTVMCompute", "FTVMSchedule")


class KernelKeys:
    """Keys of the kernels of one module, and the kernels that the cache has by them."""

    def __init__(self) -> None:
        self._context = _context_text() if current_cache() is not None else None
        self._targets: dict[Target, str | None] = {}

    def lowered(self, func: Function, target: Target, names: KernelNames) -> list[PrimFunc]:
        """Return the kernel of a primitive function from the cache, or lowered, and further functions that it needs.

        A kernel that was lowered for the first time carries its key, by which its code generator keeps it.
        """
        text = self._text(func, target)
        if text is None:
            lowered = lower_primitive(func, target, names)
            kernel = lowered.funcs[lowered.prim_fn_var]
            others = [f for var, f in lowered.funcs.items() if var is not lowered.prim_fn_var]
            return [f for f in (kernel, *others) if isinstance(f, PrimFunc)]
        name = names(kernel_name_of(func))
        key = cache_key(text, name)
        lower = _Lowering(func, target, name)
        kernel = kept_kernel(key, target, lower)
        if kernel is None:
            made = lower()
            keyed = KeyedBody(key, None, lambda: made.body)
            kernel = PrimFunc(made.params, keyed, made.ret_type, made.buffer_map, made.attrs)
        return [kernel.with_checked_type(called_type(func))]

    def _text(self, func: Function, target: Target) -> str | None:
        """Return all that a kernel depends on but its name; None for one that is lowered each time."""
        if self._context is None or is_dynamic_function(func) or SLACK.has(func) or not _is_own(func, target):
            return None
        if target not in self._targets:
            self._targets[target] = _target_text(target)
        of_target = self._targets[target]
        if of_target is None:
            return None
        return "\n".join([self._context, of_target, f"{structural_hash(func):016x}", str(func)])


@dataclass
class _Lowering:
    """Lowering of one kernel in the contexts of its build, now or when its body is first read."""

    func: Function
    target: Target
    name: str

    def __post_init__(self) -> None:
        self._contexts: list[AbstractContextManager[Any]] = [copy.copy(PassContext.current()), *contexts_in_force()]

    def __call__(self) -> PrimFunc:
        with ExitStack() as stack:
            for context in self._contexts:
                stack.enter_context(context)
            lowered = lower_primitive(self.func, self.target, lambda _: self.name)
        kernel = lowered.funcs[lowered.prim_fn_var]
        assert isinstance(kernel, PrimFunc)
        return kernel


def _context_text() -> str | None:
    """Return what is the same for all kernels of a build: the compiler, its options, and the records in force."""
    context = PassContext.current()
    if not context.option("relay.backend.keep_lowered"):
        return None
    source = source_digest()
    records = [c.records_text() for c in contexts_in_force()]
    if source is None or None in records or CUSTOM_TYPES or in_choice() or auto_scheduled():
        return None
    if context.active_instruments() or not is_plain(context.config) or _foreign_rules():
        return None
    passes = [sorted(context.required_pass), sorted(context.disabled_pass)]
    return repr([source, records, context.opt_level, sorted(context.config.items()), passes])


def _target_text(target: Target) -> str | None:
    """Return a target with its processor; None for one that somebody else's code is registered for."""
    if not target.kind.capabilities.machine_code or not GenericFunc.foreign_keys.isdisjoint(["", *target.keys]):
        return None
    return text_with_processor(target)


def _is_own(func: Function, target: Target) -> bool:
    """Return whether Tilewright alone computes and schedules the operators of a function."""
    operators = {e.op for e in post_order(func.body) if isinstance(e, Call) and isinstance(e.op, Op)}
    return all(_is_ours(op.get_attr(name)) for op in operators for name in _LOWERING)


def _is_ours(function: Any) -> bool:
    if isinstance(function, GenericFunc):
        return function.fdefault is None or is_own(function.fdefault)
    return function is None or not callable(function) or is_own(function)


def is_as_shipped(target: Target) -> bool:
    """Return whether Tilewright alone computes, schedules and lowers all operators, and no record is in force."""
    records = [c for c in contexts_in_force() if not c.is_fallback()]
    ours = all(_is_ours(op.get_attr(name)) for op in Op.registry.values() for name in _LOWERING)
    special = records or CUSTOM_TYPES or in_choice() or auto_scheduled() or _foreign_rules()
    return ours and _target_text(target) is not None and not special


def _foreign_rules() -> bool:
    """Return whether somebody else registered how an intrinsic is lowered."""
    found = (entry[0] for op in Op.registry.values() for name, entry in op.attrs.items() if name.endswith(_RULE))
    return not all(is_own(rule) for rule in found)
