"""LowerTE: from a module of primitive functions to a module of kernels.

Before::

    def @main(%x: Tensor[(1, 3), float32]) -> Tensor[(1, 3), float32] {
      %0 = fn (%p0: Tensor[(1, 3), float32], Primitive=1) { nn.softmax(%p0) };
      %0(%x)
    }

after::

    def @main(%x: Tensor[(1, 3), float32]) -> Tensor[(1, 3), float32] {
      @tvmgen_default_fused_nn_softmax(%x)
    }

    @tvmgen_default_fused_nn_softmax = primfn(placeholder_1: handle, T_softmax_1: handle) -> () ...

``relay.backend.lowered`` describes the form and verifies it. Functions of one label and target share a kernel. A
function is lowered for the target in its attribute ``target``, else for the pass's. ``process`` is called with each
kernel as soon as it is lowered, so that its machine code can be generated while the others are lowered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.attrs import DictAttrs
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import BaseFunc, GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.relay.backend.external_shapes import with_shape_function
from tilewright.relay.backend.kernel_key import KernelKeys
from tilewright.relay.backend.lowered import CALL_MARKS, is_external, is_machine_op, verify_lowered
from tilewright.relay.backend.progress import report_progress
from tilewright.relay.backend.symbolic import is_dynamic_function
from tilewright.relay.backend.te_compiler import KernelNames
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import COMPILER, GLOBAL_SYMBOL, TARGET, VIEW
from tilewright.relay.op.annotation.devices import DeviceCopy
from tilewright.relay.transform.common import TypedMutator, call_of, open_children
from tilewright.relay.transform.fusion.label_ops import hash_of
from tilewright.relay.transform.memory.views import moves_only
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import is_closed, post_order
from tilewright.target.build import host_of
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc

Process = Callable[[PrimFunc], None]
_Key = tuple[str, ...]


def LowerTE(
    target: Any = None, mod_name: str = "default", process: Process | None = None, prefix: str | None = None
) -> Pass:
    """Lower the primitive functions of a fused module.

    Parameters
    ----------
    target : their target, unless the attribute ``target`` of a function says otherwise; the current target by default.
    mod_name : part of the kernels' names.
    process : called with each kernel as soon as it is lowered.
    prefix : prefix of the kernels' names; by default ``tvmgen_`` and ``mod_name``.

    Raises
    ------
    TilewrightError for operators outside of primitive functions, and for operators without an implementation for the
    target.
    """

    def lower(mod: IRModule, ctx: PassContext) -> IRModule:
        chosen = Target(target) if target is not None else Target.current()
        if chosen is None:
            raise TilewrightError('LowerTE needs a target: LowerTE("llvm"), or "with target:" around it')
        names = KernelNames(mod_name, prefix)
        lowered = _Lowering(infer_module(mod), chosen, names, process or (lambda func: None)).run()
        verify_lowered(lowered)
        return lowered

    return ModulePass(lower, PassInfo(0, "LowerTE"))


@dataclass
class _Lowering:
    """Lowering of one module; ``found`` has the global name of each function that is called."""

    mod: IRModule
    target: Target
    names: KernelNames
    process: Process
    found: dict[_Key, GlobalVar] = field(default_factory=dict)
    functions: dict[GlobalVar, BaseFunc] = field(default_factory=dict)
    keys: dict[Function, _Key] = field(default_factory=dict)
    kernel_keys: KernelKeys = field(default_factory=KernelKeys)

    def run(self) -> IRModule:
        """Return the lowered module."""
        result = self.mod.copy()
        open_functions = {v: f for v, f in result.items() if isinstance(f, Function) and not is_closed(f)}
        calls = [e for f in open_functions.values() for e in post_order(f.body, open_children) if isinstance(e, Call)]
        callees = [c for call in calls if (c := _callee(call)) is not None]
        # functions that move whole tensors come last, so that names do not depend on whether they become views
        callees.sort(key=lambda callee: isinstance(callee, Function) and moves_only(callee))
        for i, callee in enumerate(callees, 1):
            report_progress("lower", i, len(callees), self._lower(callee).name_hint)
        for var, func in open_functions.items():
            lowered = _Caller(self).visit(func)
            assert isinstance(lowered, Function)
            result[var] = lowered
        for var, kernel in self.functions.items():
            result[var] = kernel
        return result

    def global_var(self, func: Function) -> GlobalVar:
        """Return the name of the kernel of a called function."""
        return self.found[self._key(func)]

    def _key(self, func: Function) -> _Key:
        if func not in self.keys:
            target, view = TARGET.get(func, self.target), VIEW.get(func, "")
            self.keys[func] = (hash_of(func), str(target), str(view))
        return self.keys[func]

    def _lower(self, func: RelayExpr) -> GlobalVar:
        if not isinstance(func, Function):
            name = func.name if isinstance(func, Op) else type(func).__name__
            raise TilewrightError(f"the operator {name} is outside a fused function; run relay.transform.FuseOps first")
        key = self._key(func)
        if key not in self.found:
            self.found[key] = self._keep(func) if is_external(func) or VIEW.on(func) else self._kernel(func)
        return self.found[key]

    def _kernel(self, func: Function) -> GlobalVar:
        kernel, *others = self.kernel_keys.lowered(func, Target(TARGET.get(func, self.target)), self.names)
        for made in (*others, kernel):
            var = GlobalVar(GLOBAL_SYMBOL.of(made)).with_checked_type(made.checked_type_or_none)
            self.functions[var] = made
            self.process(made)
        return var

    def _keep(self, func: Function) -> GlobalVar:
        """Keep a function as it is, under a name of its own."""
        if is_external(func):
            name = str(GLOBAL_SYMBOL.get(func) or self.names(COMPILER.of(func)))
        else:
            name = self.names(f"view_{VIEW.of(func)}")
        var = GlobalVar(name).with_checked_type(func.checked_type)
        if is_external(func) and is_dynamic_function(func):
            host = host_of(Target(TARGET.get(func, self.target)))
            func, shapes = with_shape_function(func, name, self.names(f"shape_func_{name}"), host)
            self.functions[GlobalVar(GLOBAL_SYMBOL.of(shapes)).with_checked_type(shapes.checked_type_or_none)] = shapes
            self.process(shapes)
        self.functions[var] = func.with_attr(GLOBAL_SYMBOL.key, name)
        return var


def _callee(call: Call) -> RelayExpr | None:
    """Return the closed function that a call needs lowered, or an operator, which cannot be lowered; else None."""
    if is_closed(call.op):
        return call.op
    if not isinstance(call.op, Op) or call_of(call, DeviceCopy.op):
        return None
    if not is_machine_op(call.op):
        return call.op
    return call.args[0] if is_closed(call.args[0]) else None


class _Caller(TypedMutator):
    """Replace calls of closed functions by calls of their lowered functions."""

    def __init__(self, lowering: _Lowering) -> None:
        super().__init__()
        self.lowering = lowering

    def visit_call(self, expr: Call) -> RelayExpr:
        if not is_closed(expr.op):
            post = super().visit_call(expr)
            if not isinstance(post, Call) or not is_machine_op(post.op) or not is_closed(post.args[0]):
                return post
            assert isinstance(post.args[0], Function)  # vm.invoke_tvm_op(%kernel, ...)
            return post.replace(args=(self.lowering.global_var(post.args[0]), *post.args[1:]))
        assert isinstance(expr.op, Function)
        marks = {name: expr.op.attrs[name] for name in CALL_MARKS if name in expr.op.attrs}
        args = [self.visit(arg) for arg in expr.args]
        return Call(self.lowering.global_var(expr.op), args, DictAttrs(marks) if marks else None, span=expr.span)
