"""The table of global functions, shared by Python, C and compiled code."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from typing import Any

from ._ffi import LIB, check_call
from .packed_func import PackedFunc, convert_to_packed


def register_func(
    func_name: str | Callable[..., Any], f: Callable[..., Any] | None = None, override: bool = False
) -> Any:
    """Register a function under a global name; usable as a decorator.

    Args:
        func_name: the name, or the function itself, to use its own name.
        f: the function; without it a decorator is returned.
        override: whether to replace an earlier function of that name.

    Returns:
        The function itself, or a decorator.

    Raises:
        TVMError: the name is taken and override is false.
    """
    if callable(func_name):
        f, func_name = func_name, func_name.__name__

    name = func_name.encode("utf-8")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        packed = convert_to_packed(function)
        check_call(LIB.TVMFuncRegisterGlobal(name, packed.handle, int(override)))
        return function

    return register(f) if f is not None else register


# Functions that modules of Tilewright register when they are imported, which happens on first use.
_REGISTERED_BY = {
    "arith.DomainTouched": "tilewright.tir.domain_touched",
    "runtime.CSourceModuleCreate": "tilewright.target.codegen.c.generator",
    "target.TargetCurrent": "tilewright.target.target",
    "test.op.InferTensorizeRegion": "tilewright.te.schedule.schedule_ops",
    "test.op.MatchTensorizeBody": "tilewright.te.schedule.schedule_ops",
    "tir.const_true": "tilewright.tir.op",
    "tvm.default_trace_action": "tilewright.tir.op",
}


def get_global_func(name: str, allow_missing: bool = False) -> PackedFunc | None:
    """Return a global function.

    Raises:
        ValueError: there is none and allow_missing is false.
    """
    found = _find(name)
    if found is None and name in _REGISTERED_BY:  # whose module nobody has imported yet
        importlib.import_module(_REGISTERED_BY[name])
        found = _find(name)
    if found is not None or allow_missing:
        return found
    raise ValueError(f"Cannot find global function {name}")


def _find(name: str) -> PackedFunc | None:
    out = ctypes.c_void_p()
    check_call(LIB.TVMFuncGetGlobal(name.encode("utf-8"), ctypes.byref(out)))
    return None if out.value is None else PackedFunc(out.value)


def need_global_func(name: str) -> PackedFunc:
    """Return a global function that must exist."""
    function = get_global_func(name)
    assert function is not None
    return function


def remove_global_func(name: str) -> None:
    """Remove a global function, if there is one."""
    check_call(LIB.TVMFuncRemoveGlobal(name.encode("utf-8")))


def list_global_func_names() -> list[str]:
    """Return the sorted names of all global functions."""
    count = ctypes.c_int()
    names = ctypes.POINTER(ctypes.c_char_p)()
    check_call(LIB.TVMFuncListGlobalNames(count, names))
    return [(names[i] or b"").decode("utf-8") for i in range(count.value)]


class ObjectGeneric:
    """Base of classes that ``convert`` replaces by a node."""

    def asobject(self) -> Any:
        """Return the object that represents this one."""
        raise NotImplementedError(f"{type(self).__name__} defines no asobject()")


_make_node: Callable[[Any], Any] | None = None


def set_node_maker(make_node: Callable[[Any], Any]) -> None:
    """Set how ``convert`` makes nodes from numbers and containers; the compiler does when it is loaded."""
    global _make_node
    _make_node = make_node


def const(value: Any, dtype: str | None = None, span: object = None) -> Any:
    """Return a literal of the IR, of its own dtype by default; a Python number in a runtime alone."""
    made = convert(value)
    return made if dtype is None or _make_node is None else made.astype(dtype)


def convert(value: Any, span: object = None) -> Any:
    """Convert a Python value as TVM does: numbers become literals of the IR, lists ``Array``, dictionaries ``Map``,
    callables PackedFunc, also inside containers.

    Nodes, some of which build a call when they are called, stay what they are. Without the compiler (a runtime alone)
    numbers and containers stay Python's.
    """
    if isinstance(value, ObjectGeneric):
        return value.asobject()
    if callable(value) and not isinstance(value, type) and not hasattr(value, "_fields"):
        return convert_to_packed(value)
    if _make_node is not None:
        return _make_node(value)
    if isinstance(value, (list, tuple)):
        return type(value)(convert(item) for item in value)
    if isinstance(value, dict):
        return {key: convert(item) for key, item in value.items()}
    return value


convert_to_object = convert
