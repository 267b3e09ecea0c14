"""PlanDevices: find the device of every expression from marks, and insert the copies between devices.

Before, where cuda is 2 and the default::

    def @main(%a: Tensor[(5, 7), float32], %b: Tensor[(5, 7), float32], %c: Tensor[(5, 7), float32]) {
      %0 = add(%a, %b);
      %1 = on_device(%0, device_type=1);
      subtract(%1, %c)
    }

after::

    def @main(%a: Tensor[(5, 7), float32], %b: Tensor[(5, 7), float32], %c: Tensor[(5, 7), float32],
              param_device_types=[1, 1, 2], result_device_type=2) {
      %0 = add(%a, %b);
      %1 = on_device(%0, device_type=1, is_fixed=True);
      %2 = device_copy(%1, src_dev_type=1, dst_dev_type=2);
      subtract(%2, %c)
    }

``relay.transform.device_domains`` describes how devices are found. Three cases are settled first: the result of a
function whose body is an ``on_device``, and a variable that one is bound to, are on that device; and of a tuple on a
device, a field is copied rather than the tuple. Afterwards fixed ``on_device`` calls enclose the operands that are not
on the device of their user; every other expression is on its user's. The pass is idempotent.
Source: the pass of that name of TVM 0.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.relay.adt import Clause, Constructor, Match
from tilewright.relay.expr import (
    Call,
    Constant,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.relay.function_attributes import PARAM_DEVICE_TYPES, RESULT_DEVICE_TYPE
from tilewright.relay.op.annotation.devices import DeviceCopy, OnDevice, device_copy, device_type_of, on_device
from tilewright.relay.transform.common import call_of, open_children
from tilewright.relay.transform.devices.device_domains import DeviceDomains, result_of
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, is_closed


class _Settler(ExprMutator):
    """Settle cases that need no domains."""

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_let(self, expr: Let) -> RelayExpr:
        post = super().visit_let(expr)
        assert isinstance(post, Let)
        return post if post.value is (value := _fixed(post.value)) else post.replace(value=value)

    def visit_function(self, expr: Function) -> RelayExpr:
        if is_closed(expr):
            return expr
        post = super().visit_function(expr)
        assert isinstance(post, Function)
        return post if post.body is (body := _fixed(post.body)) else post.replace(body=body)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        post = super().visit_tuple_getitem(expr)
        assert isinstance(post, TupleGetItem)
        mark = call_of(post.tuple_value, OnDevice.op)
        if mark is None or mark.attrs.is_fixed:  # type: ignore[union-attr]
            return post
        return on_device(post.replace(tuple_value=mark.args[0]), mark.attrs.device_type)  # type: ignore[union-attr]


def _fixed(expr: RelayExpr) -> RelayExpr:
    """Return an ``on_device`` that also states the device of its use."""
    mark = call_of(expr, OnDevice.op)
    if mark is None or mark.attrs.is_fixed:  # type: ignore[union-attr]
        return expr
    return on_device(mark.args[0], mark.attrs.device_type, is_fixed=True)  # type: ignore[union-attr]


class _Writer(ExprMutator):
    """Record domains: attributes of functions, copies, and marks where the device changes."""

    def __init__(self, domains: DeviceDomains) -> None:
        super().__init__()
        self.domains = domains

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def _operand(self, expr: RelayExpr, user: int, wanted: int | None = None) -> RelayExpr:
        """Return ``expr`` for a user on the device ``user`` that wants it on ``wanted``, or else on its own device."""
        wanted = user if wanted is None else wanted
        found = self._device(expr, wanted)
        result = self.visit(expr)
        if found != wanted:
            result = device_copy(_marked(result, found), found, wanted)
        return result if wanted == user else _marked(result, wanted)

    def _device(self, expr: RelayExpr, wanted: int) -> int:
        """Return the device of an operand; its marks, which will be removed, are skipped."""
        marked = wanted
        while (mark := call_of(expr, OnDevice.op)) is not None:
            expr, marked = mark.args[0], mark.attrs.device_type  # type: ignore[union-attr]
        return marked if isinstance(expr, Constant) else self.domains.device(expr)

    def _operands(self, exprs: Sequence[RelayExpr], user: RelayExpr) -> list[RelayExpr]:
        device = self.domains.device(user)
        return [self._operand(e, device) for e in exprs]

    def visit_call(self, expr: Call) -> RelayExpr:
        if call_of(expr, OnDevice.op):
            return self.visit(expr.args[0])
        copy = call_of(expr, DeviceCopy.op)
        if copy and copy.attrs.src_dev_type == copy.attrs.dst_dev_type:  # type: ignore[union-attr]
            return self.visit(expr.args[0])
        device, callee = self.domains.device(expr), self.domains.of_callee(expr)
        wanted = [result_of(part).device for part in callee.parts[:-1]]
        args = [self._operand(a, device, w) for a, w in zip(expr.args, wanted, strict=True)]
        return Call(self.visit(expr.op), args, expr.attrs, expr.type_args, expr.span)

    def visit_function(self, expr: Function) -> RelayExpr:
        if is_closed(expr):
            return expr
        *params, result = (result_of(part).device for part in self.domains.of(expr).parts)
        func = Function(
            expr.params, self._operand(expr.body, result), expr.ret_type, expr.type_params, expr.attrs, expr.span
        )
        return func.with_attr({PARAM_DEVICE_TYPES.key: params, RESULT_DEVICE_TYPE.key: result})

    def visit_let(self, expr: Let) -> RelayExpr:
        device = self.domains.device(expr)
        value = self._operand(expr.value, device, self.domains.device(expr.var))
        return Let(expr.var, value, self._operand(expr.body, device), expr.span)

    def visit_tuple(self, expr: Tuple) -> RelayExpr:
        return Tuple(self._operands(expr.fields, expr), expr.span)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        return TupleGetItem(self._operands([expr.tuple_value], expr)[0], expr.index, expr.span)

    def visit_if(self, expr: If) -> RelayExpr:
        cond, then, other = self._operands([expr.cond, expr.true_branch, expr.false_branch], expr)
        return If(cond, then, other, expr.span)

    def visit_match(self, expr: Match) -> RelayExpr:
        data, *results = self._operands([expr.data, *(c.rhs for c in expr.clauses)], expr)
        clauses = [Clause(c.lhs, rhs, c.span) for c, rhs in zip(expr.clauses, results, strict=True)]
        return Match(data, clauses, expr.complete, expr.span)

    def visit_ref_create(self, expr: RefCreate) -> RelayExpr:
        return RefCreate(self._operands([expr.value], expr)[0], expr.span)

    def visit_ref_read(self, expr: RefRead) -> RelayExpr:
        return RefRead(self._operands([expr.ref], expr)[0], expr.span)

    def visit_ref_write(self, expr: RefWrite) -> RelayExpr:
        ref, value = self._operands([expr.ref, expr.value], expr)
        return RefWrite(ref, value, expr.span)


def _marked(expr: RelayExpr, device: int) -> RelayExpr:
    """Return ``expr`` with the mark of its device, unless a let or a function states it."""
    if isinstance(expr, Op | Constructor | GlobalVar | Var | Function) or call_of(expr, OnDevice.op):
        return expr
    return on_device(expr, device, is_fixed=True)


def _map(mod: IRModule, visitor: ExprMutator) -> IRModule:
    result = mod.copy()
    for var, func in mod.items():
        if isinstance(func, Function):
            new = visitor.visit(func)
            assert isinstance(new, Function)
            result[var] = new
    return infer_module(result)


def PlanDevices(default_device: Any) -> Pass:
    """Find the device of every expression, and insert copies where a value is used on another device than its own.

    Parameters
    ----------
    default_device : a Device, its name or its type number: the device of expressions that no mark determines.

    Raises
    ------
    TilewrightError when marks contradict each other; the message names both.
    """
    default = device_type_of(default_device)

    def plan(mod: IRModule, ctx: PassContext) -> IRModule:
        settled = _map(infer_module(mod), _Settler())
        functions = [f for _, f in settled.items() if isinstance(f, Function) and not is_closed(f)]
        domains = DeviceDomains(settled)
        for func in functions:
            domains.collect(func)
        for func in functions:
            domains.set_defaults(func, default)
        return _map(settled, _Writer(domains))

    return ModulePass(plan, PassInfo(0, "PlanDevices"))
