"""PlaceOperators: place operators that are slow on an accelerator on the CPU.

Before, for a GPU of type 4::

    %0 = nn.relu(%boxes);
    %1 = vision.non_max_suppression(%0, %count, %indices, -1, 0.5f, return_indices=False);
    multiply(%1, 2f)

after::

    %0 = nn.relu(%boxes);
    %1 = on_device(%0, device_type=4);
    %2 = on_device(%count, device_type=4);
    %3 = on_device(%indices, device_type=4);
    %4 = vision.non_max_suppression(%1, %2, %3, -1, 0.5f, return_indices=False);
    %5 = multiply(%4, 2f);
    on_device(%5, device_type=1)

The steps of operators that are declared ``sequential`` depend on one another: they would keep one of a GPU's processors
busy. They go to the CPU, and injective operators that read only their results stay there with them. ``PlanDevices``
turns the marks into copies. Marks of the program stay as they are, and marked values are not moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op.annotation.devices import DeviceCopy, OnDevice, device_type_of, on_device
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.transform.common import call_of, open_children, typed_function_pass
from tilewright.relay.visitor import ExprMutator, post_order

_CPU = 1
_DATA_FLOW = (Call, Constant, Function, GlobalVar, Op, Tuple, TupleGetItem, Var)


class _Placer(ExprMutator):
    """Insert marks around operands that are not on the device of their user."""

    def __init__(self, body: RelayExpr, device: int, kept: set[RelayExpr]) -> None:
        super().__init__()
        self.body, self.device, self.kept = body, device, kept
        self.moved: set[RelayExpr] = set()  # original expressions that are now on the CPU

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        assert isinstance(post, Call)
        if _is_mark(expr):
            return post
        if self._goes(expr):
            self.moved.add(expr)
        args = [self._operand(*pair, expr in self.moved) for pair in zip(expr.args, post.args, strict=True)]
        return post if args == list(post.args) else post.replace(args=tuple(args))

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        post = super().visit_tuple_getitem(expr)
        if expr.tuple_value in self.moved:
            self.moved.add(expr)
        return post

    def visit_tuple(self, expr: Tuple) -> RelayExpr:
        post = super().visit_tuple(expr)
        assert isinstance(post, Tuple)
        if expr is self.body and expr.fields and all(self._is_there(field) for field in expr.fields):
            self.moved.add(expr)  # results stay where they were computed
            return post
        fields = [self._operand(*pair, False) for pair in zip(expr.fields, post.fields, strict=True)]
        return post if fields == list(post.fields) else post.replace(fields=tuple(fields))

    def _goes(self, call: Call) -> bool:
        """Return whether a call is faster on the CPU."""
        if (
            call in self.kept
            or not isinstance(call.op, Op)
            or not all(isinstance(a.checked_type, TensorType) for a in call.args)
        ):
            return False
        if call.op.get_attr("TSequential", False):
            return True
        pattern: Any = call.op.get_attr("TOpPattern", OpPattern.OPAQUE)
        data = [arg for arg in call.args if not isinstance(arg, Constant)]
        return pattern <= OpPattern.INJECTIVE and bool(data) and all(arg in self.moved for arg in data)

    def _is_there(self, expr: RelayExpr) -> bool:
        return isinstance(expr, Constant) or expr in self.moved

    def _operand(self, pre: RelayExpr, post: RelayExpr, on_cpu: bool) -> RelayExpr:
        """Return an operand for a user on the CPU, or on the device."""
        if isinstance(pre, Constant) or _is_mark(pre) or (pre in self.moved) == on_cpu:
            return post
        if on_cpu:
            return on_device(post, self.device)
        return _marked_fields(pre, post)


def _marked_fields(pre: RelayExpr, post: RelayExpr) -> RelayExpr:
    """Mark ``post`` as on the CPU; of a tuple, each field."""
    if isinstance(pre.checked_type, TensorType):
        return on_device(post, _CPU)
    count = len(pre.checked_type.fields)  # type: ignore[attr-defined]
    return Tuple([on_device(TupleGetItem(post, k), _CPU) for k in range(count)])


def _is_mark(expr: RelayExpr) -> bool:
    return call_of(expr, OnDevice.op) is not None or call_of(expr, DeviceCopy.op) is not None


def PlaceOperators(device: Any) -> Pass:
    """Place operators that are slow on ``device`` (attribute ``TSequential``) on the CPU, with those that only follow
    them.

    Parameters
    ----------
    device : a Device, its name or its type number: the default device. Nothing is done for the CPU.

    Functions with lets, branches or references stay as they are (``ToGraphNormalForm`` removes lets).
    """
    place = device_type_of(device)

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        found = list(post_order(func, open_children))
        if place == _CPU or not all(isinstance(expr, _DATA_FLOW) for expr in found):
            return func
        kept = {expr.args[0] for expr in found if isinstance(expr, Call) and _is_mark(expr)}
        placer = _Placer(func.body, place, kept)
        post = placer.visit(func)
        if func.body in placer.moved:
            assert isinstance(post, Function)
            return post.replace(body=on_device(post.body, _CPU))
        return post

    return typed_function_pass(run, "PlaceOperators")
