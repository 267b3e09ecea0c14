"""The executor that a program needs: the choice of ``relay.build(mod, executor="auto")`` and the command line.

=================================================================  =========
of main and what it calls                                          executor
=================================================================  =========
operators on tensors of known shapes                               ``graph``
shapes, branches and loops that are known at run time only;        ``vm``
data types, references
=================================================================  =========
"""

from __future__ import annotations

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.module import IRModule
from tilewright.ir.type import is_dynamic
from tilewright.relay import transform
from tilewright.relay.backend.executors import DEFAULT_EXECUTOR
from tilewright.relay.backend.symbolic import is_dynamic_function
from tilewright.relay.backend.vm_build import NAME as VM
from tilewright.relay.data_flow import REMEDY
from tilewright.relay.expr import Function
from tilewright.relay.features import Feature, detect_feature
from tilewright.relay.transform.common import open_children
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import is_closed, post_order

AUTO = "auto"
_CONTROL = {
    Feature.fLetRec: "a loop (a function that calls itself)",
    Feature.fIf: "a branch (If)",
    Feature.fMatch: "a match",
    Feature.fConstructor: "a data type",
    Feature.fRefCreate: "a reference",
}


def control_of(mod: IRModule) -> str | None:
    """Return what a program has beside data flow, for a message; None where all of it can become data flow."""
    needed = transform.RemoveUnusedFunctions()(mod)
    functions = {v: f for v, f in needed.items() if isinstance(f, Function) and not is_closed(f)}
    for var, func in functions.items():
        if var in post_order(func.body, open_children):
            return _CONTROL[Feature.fLetRec]
    found = {feature for func in functions.values() for feature in detect_feature(func)}
    return next((text for feature, text in _CONTROL.items() if feature in found), None)


def _has_unknown_shapes(mod: IRModule) -> bool:
    """Return whether the shape of some tensor of main is known at run time only."""
    typed = infer_module(mod)
    if is_dynamic_function(typed["main"]):
        return True
    inner = (e.checked_type_or_none for e in post_order(typed["main"].body, open_children))
    return any(type_ is not None and is_dynamic(type_) for type_ in inner)


def needed_executor(mod: IRModule) -> str:
    """Return the name of the executor that a program is compiled for by default."""
    if control_of(mod) is not None:
        return VM
    if not _has_unknown_shapes(mod):
        return DEFAULT_EXECUTOR
    return VM if _has_unknown_shapes(transform.DynamicToStatic()(mod)) else DEFAULT_EXECUTOR


def check_data_flow(mod: IRModule) -> None:
    """Refuse a loop, which the graph executor cannot run, before passes take the program apart."""
    control = control_of(mod)
    if control == _CONTROL[Feature.fLetRec]:
        raise UnsupportedError(f"the graph executor runs data flow only, and main needs {control}. {REMEDY}")
