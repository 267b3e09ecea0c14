"""Programs with control flow on several devices: the result of PlanDevices in the form for the virtual machine.

Data flow is cut into parts, one for each device (``ForEachDevice``). Branches, loops and closures cannot be cut, so
passes on operators, and fusion, run on such a program as a whole: values go from device to device only through
``device_copy``, which does not fuse. Afterwards ``OnDevices`` records the device of each kernel::

    if (%cond) { ... }                               // planned on OpenCL, 4
    %f(%x, 0f)                                       // a function of a program, whose parameters are there

    if (device_copy(%cond, src_dev_type=4, dst_dev_type=1)) { ... }
    %f(%x, device_copy(0f, src_dev_type=1, dst_dev_type=4))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.relay.adt import Constructor, Match
from tilewright.relay.expr import Call, Constant, Function, If, Let, RefCreate, RefRead, RefWrite, Tuple
from tilewright.relay.function_attributes import PARAM_DEVICE_TYPES, RESULT_DEVICE_TYPE
from tilewright.relay.op.annotation.devices import device_copy
from tilewright.relay.transform.common import TypedMutator, open_children
from tilewright.relay.transform.devices.device_domains import DeviceDomains, result_of
from tilewright.relay.transform.devices.for_each_device import PlainCopies, device_marks, target_of
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import is_closed, post_order
from tilewright.runtime.device import cpu
from tilewright.target.target import Target

CPU = cpu().device_type


def has_control_flow(mod: IRModule) -> bool:
    """Return whether main has branches, loops or references, or calls functions of the module that are not kernels."""
    main = mod["main"]
    assert isinstance(main, Function)
    open_names = {v.name_hint for v, f in mod.functions.items() if not is_closed(f)}
    return any(
        isinstance(e, (If, Match, RefCreate, RefRead, RefWrite, Constructor))
        or (isinstance(e, GlobalVar) and e.name_hint in open_names)
        for e in post_order(main.body, open_children)
    )


def PlainControlFlow() -> Pass:
    """Keep only the necessary copies of a planned program: drop marks, copies of constants, and copies there and
    back.
    """

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        return _map(mod, PlainCopies())

    return ModulePass(run, PassInfo(0, "PlainControlFlow"))


def OnDevices(targets: Mapping[int, Target], default: int) -> Pass:
    """Record devices and targets of fused functions; conditions go to the CPU, and constants to the device of their
    use.

    Raises
    ------
    TilewrightError for an expression on a device without a target
    """

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        typed = infer_module(mod)
        domains = DeviceDomains(typed)
        functions = [f for f in typed.functions.values() if isinstance(f, Function) and not is_closed(f)]
        for func in functions:
            domains.collect(func)
        for func in functions:
            domains.set_defaults(func, default)
        return _map(typed, _Writer(domains, targets, default))

    return ModulePass(run, PassInfo(0, "OnDevices"))


def _map(mod: IRModule, visitor: TypedMutator) -> IRModule:
    result = mod.copy()
    for var, func in mod.functions.items():
        if isinstance(func, Function) and not is_closed(func):
            made = visitor.visit(func)
            assert isinstance(made, Function)
            result[var] = made
    return infer_module(result)


def _copied(value: RelayExpr, source: int, device: int) -> RelayExpr:
    return device_copy(value, source, device).with_checked_type(value.checked_type)


class _Writer(TypedMutator):
    def __init__(self, domains: DeviceDomains, targets: Mapping[int, Target], usual: int) -> None:
        super().__init__()
        self.domains = domains
        self.targets = targets
        self.usual = usual

    def _operand(self, expr: RelayExpr, device: int) -> RelayExpr:
        """Return an operand that no kernel takes: a constant is on the default device."""
        made = self.visit(expr)
        astray = isinstance(expr, Constant) and device not in (0, self.usual)
        return _copied(made, self.usual, device) if astray else made

    def _all(self, exprs: Sequence[RelayExpr], user: RelayExpr) -> list[RelayExpr]:
        return [self._operand(e, self.domains.device(user)) for e in exprs]

    def visit_call(self, expr: Call) -> RelayExpr:
        if isinstance(expr.op, Op):
            return super().visit_call(expr)
        *params, result = (result_of(part).device for part in self.domains.of_callee(expr).parts)
        if not is_closed(expr.op):
            args = [self._operand(a, device) for a, device in zip(expr.args, params, strict=True)]
            return Call(self.visit(expr.op), args, expr.attrs, expr.type_args, expr.span)
        assert isinstance(expr.op, Function)
        args = [self.visit(a) for a in expr.args]
        op = expr.op.with_attr(device_marks(target_of(self.targets, result), result)).with_checked_type(
            expr.op.checked_type
        )
        return Call(op, args, expr.attrs, expr.type_args, expr.span)

    def visit_if(self, expr: If) -> RelayExpr:
        device = self.domains.device(expr)
        cond, then, other = self.visit(expr.cond), *self._all([expr.true_branch, expr.false_branch], expr)
        if device != CPU and not isinstance(expr.cond, Constant):
            cond = _copied(cond, device, CPU)
        return If(cond, then, other, expr.span)

    def visit_tuple(self, expr: Tuple) -> RelayExpr:
        return Tuple(self._all(expr.fields, expr), expr.span)

    def visit_let(self, expr: Let) -> RelayExpr:
        value = self._operand(expr.value, self.domains.device(expr.var))
        return Let(expr.var, value, self._operand(expr.body, self.domains.device(expr)), expr.span)

    def visit_function(self, expr: Function) -> RelayExpr:
        if is_closed(expr):
            return expr
        *_, result = (result_of(part).device for part in self.domains.of(expr).parts)
        made = expr.replace(body=self._operand(expr.body, result))
        return (
            made
            if expr is self.domains.mod["main"]
            else made.without_attr(PARAM_DEVICE_TYPES.key).without_attr(RESULT_DEVICE_TYPE.key)
        )
