"""PlanViews: mark primitive functions that need no kernel, since their results are in existing memory.

Before, with results of convolutions %a and %b::

    %0 = (%a, %b, %x);
    %1 = fn (%p0: (Tensor[(1, 4, 8, 8)], Tensor[(1, 2, 8, 8)], Tensor[(1, 2, 8, 8)]), Primitive=1) {
      concatenate(%p0, axis=1)
    };
    %1(%0)

after::

    %0 = fn (%p0: Tensor[(1, 2, 8, 8)], Primitive=1, in_place=1) { copy(%p0) };
    %1 = fn (%p0, %p1, %p2, Primitive=1, view="join", offsets=[0, 1024, 1536]) {
      %2 = (%p0, %p1, %p2);
      concatenate(%2, axis=1)
    };
    %1(%a, %b, %0(%x))

%a and %b are written to their places in the result; %x, an input, is copied there. Attributes of functions: ``view`` is
"reshape" (the result is the argument), "join" (the arguments are at ``offsets`` in the result) or "cut" (the results
are at ``offsets`` in the argument); ``in_place``: the result of this call is written into the view that takes it;
``run_once``: the call prepares a parameter, and one run serves all runs of the graph. A function without a ``view``
becomes a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType, TupleType
from tilewright.relay.data_flow import DataFlow, Entry, refuse_callee, tensor_types
from tilewright.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from tilewright.relay.function_attributes import (
    COMPILER,
    DEVICE_TYPE,
    IN_PLACE,
    OFFSETS,
    PRIMITIVE,
    RUN_ONCE,
    TARGET,
    VIEW,
)
from tilewright.relay.op.annotation.devices import DeviceCopy
from tilewright.relay.op.tensor.unary import copy
from tilewright.relay.op.views import View, is_reshape, tensor_bytes
from tilewright.relay.transform.common import TypedMutator, call_of, typed_function_pass
from tilewright.relay.transform.fusion.label_ops import labelled
from tilewright.relay.transform.infer_type import infer_type
from tilewright.relay.transform.memory.views import Buffers, view_of_kernel
from tilewright.relay.transform.simplify.fold_constant import grows_at_load
from tilewright.relay.visitor import is_closed


@dataclass(slots=True)
class _Step:
    """An input or constant (no ``call``), or a call, which may become the ``view`` of ``parts``."""

    types: Sequence[TensorType]
    call: Call | None = None
    inputs: list[Entry] = field(default_factory=list)
    view: View | None = None
    parts: list[Entry] = field(default_factory=list)
    constant: bool = False
    reshapes: bool = False
    once: bool = False


class _Steps(DataFlow):
    """The steps of a function, and what each may become."""

    def __init__(self, func: Function, use_offsets: bool) -> None:
        super().__init__()
        self.use_offsets = use_offsets
        self.steps: list[_Step] = []
        for param in func.params:
            types = tensor_types(param.checked_type)
            self.memo_map[param] = [entry for t in types for entry in self._add(_Step([t]))]
        self.outputs = self.visit(func.body)

    def _add(self, step: _Step) -> list[Entry]:
        self.steps.append(step)
        return [Entry(len(self.steps) - 1, i) for i in range(len(step.types))]

    def visit_constant(self, expr: Constant) -> list[Entry]:
        return self._add(_Step([expr.tensor_type], constant=True))

    def visit_call(self, expr: Call) -> list[Entry]:
        inputs = [entry for arg in expr.args for entry in self.visit(arg)]
        step = _Step(tensor_types(expr.checked_type), expr, inputs)
        if call_of(expr, DeviceCopy.op):
            return self._add(step)
        if not isinstance(expr.op, Function) or not is_closed(expr.op):
            raise refuse_callee(expr.op)
        if COMPILER.on(expr.op):
            return self._add(step)
        if len(inputs) == len(step.types) == 1 and _is_reshape(expr.op) and self.steps[inputs[0].node].call:
            step.reshapes = True
        elif self.use_offsets and (found := view_of_kernel(expr.op, len(inputs))) is not None:
            step.view, step.parts = found[0], [inputs[i] for i in found[1]]
        step.once = _makes_ready(expr.op) and all(self.steps[e.node].constant for e in inputs)
        return self._add(step)


@dataclass
class _Plan:
    """The views among calls: for each, which of its parts are copied to their place."""

    views: dict[RelayExpr, tuple[View, Sequence[int]]] = field(default_factory=dict)
    reshapes: dict[RelayExpr, None] = field(default_factory=dict)
    once: dict[RelayExpr, None] = field(default_factory=dict)


def _plan(walk: _Steps) -> _Plan:
    plan, buffers = _Plan(), Buffers()
    outputs = _with_reshaped(walk.outputs, walk.steps)
    for index, step in enumerate(walk.steps):
        if step.call is not None and step.once:
            plan.once[step.call] = None
        if step.call is not None and step.reshapes:
            plan.reshapes[step.call] = None
            buffers.view(Entry(index), step.inputs[0])
        elif step.call is not None and step.view is not None and _lies_in_place(walk, index, outputs, buffers, plan):
            continue
        else:
            for i, type_ in enumerate(step.types):
                buffers.add(Entry(index, i), tensor_bytes(type_), fixed=step.call is None or step.once)
    return plan


def _lies_in_place(walk: _Steps, index: int, outputs: set[Entry], buffers: Buffers, plan: _Plan) -> bool:
    """Make the call a view if that saves copies; outputs of the graph, and fixed memory, stay separate."""
    step = walk.steps[index]
    assert step.view is not None and step.call is not None
    if step.view.joins:
        types = [walk.steps[e.node].types[e.index] for e in step.parts]
        parts = list(zip(step.parts, step.view.offsets, map(tensor_bytes, types), strict=True))
        placed = buffers.join(Entry(index), parts, keep=[i for i, e in enumerate(step.parts) if e in outputs])
        if not any(placed):
            return False
        copied = [i for i, (_, _, nbytes) in enumerate(parts) if nbytes and not placed[i]]
        for i in copied:
            buffers.place((index, i), Entry(index), parts[i][1], parts[i][2])
        plan.views[step.call] = step.view, copied
        return True
    entries = [Entry(index, i) for i in range(len(step.types))]
    if buffers.is_fixed(step.parts[0]) or any(e in outputs for e in entries):
        return False
    for entry, offset in zip(entries, step.view.offsets, strict=True):
        buffers.view(entry, step.parts[0], offset)
    plan.views[step.call] = step.view, ()
    return True


class _Marker(TypedMutator):
    """Rewriter of the calls that a plan changes."""

    def __init__(self, plan: _Plan) -> None:
        super().__init__()
        self.plan = plan

    def visit_call(self, expr: Call) -> RelayExpr:
        if expr in self.plan.views:
            return self._view(expr, *self.plan.views[expr])
        post = super().visit_call(expr)
        marks = (
            {RUN_ONCE.key: 1} if expr in self.plan.once else {VIEW.key: "reshape"} if expr in self.plan.reshapes else {}
        )
        if not marks:
            return post
        assert isinstance(post, Call) and isinstance(post.op, Function)
        return Call(post.op.with_attr(marks), post.args, span=post.span)

    def _view(self, expr: Call, view: View, copied: Sequence[int]) -> RelayExpr:
        func = expr.op
        assert isinstance(func, Function) and isinstance(func.body, Call)
        values = [item for arg in expr.args for item in _fields(self.visit(arg))]
        found = view_of_kernel(func, len(values))
        assert found is not None
        target = {a.key: a.of(func) for a in (TARGET, DEVICE_TYPE) if a.has(func)}
        parts = [_copy(values[i], target) if n in copied else values[i] for n, i in enumerate(found[1])]
        params = [Var(f"p{i}", part.checked_type) for i, part in enumerate(parts)]
        body = Call(func.body.op, [Tuple(params)] if view.joins else params, func.body.attrs)
        marks = {PRIMITIVE.key: 1, VIEW.key: "join" if view.joins else "cut", OFFSETS.key: view.offsets}
        canonical = infer_type(Function(params, body, expr.checked_type, attrs=marks))
        return Call(canonical, parts, span=expr.span)


def _fields(expr: RelayExpr) -> list[RelayExpr]:
    """Return a tensor, or the fields of a tuple of tensors, as a list."""
    type_ = expr.checked_type
    if not isinstance(type_, TupleType):
        return [expr]
    if isinstance(expr, Tuple):
        return list(expr.fields)
    return [TupleGetItem(expr, i).with_checked_type(t) for i, t in enumerate(type_.fields)]


def _copy(value: RelayExpr, target: dict[str, Any]) -> RelayExpr:
    """Return a call of a kernel (for ``target``, if any) that copies a tensor into the view that takes it."""
    type_ = value.checked_type
    param = Var("p0", type_).with_checked_type(type_)
    body = Call(copy.op, [param]).with_checked_type(type_)
    func = infer_type(labelled(Function([param], body, type_, attrs={PRIMITIVE.key: 1} | target)))
    assert isinstance(func, Function)
    return Call(func.with_attr(IN_PLACE.key, 1), [value]).with_checked_type(type_)


def _makes_ready(func: Function) -> bool:
    """Return whether a kernel is a single operator that runs when the library is loaded."""
    return isinstance(func.body, Call) and isinstance(func.body.op, Op) and grows_at_load(func.body.op)


def _is_reshape(func: Function) -> bool:
    body, calls = func.body, 0
    while isinstance(body, Call):
        if not is_reshape(body):
            return False
        body, calls = body.args[0], calls + 1
    return calls > 0 and isinstance(body, Var)


def _with_reshaped(heads: Sequence[Entry], steps: Sequence[_Step]) -> set[Entry]:
    """Return the outputs, and the tensors that they are reshapes of: the same memory."""
    found = set(heads)
    pending = list(heads)
    while pending:
        step = steps[pending.pop().node]
        if step.reshapes and step.inputs[0] not in found:
            found.add(step.inputs[0])
            pending.append(step.inputs[0])
    return found


def PlanViews() -> Pass:
    """Mark the functions in main that need no kernel, for the graph executor.

    Without the option ``relay.graph.storage_offset``, reshapes alone.

    Raises:
        UnsupportedError: main is more than data flow between primitive functions.
    """

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        if "main" not in mod or func is not mod["main"]:
            return func
        return _Marker(_plan(_Steps(func, ctx.option("relay.graph.storage_offset")))).visit(func)

    return typed_function_pass(run, "PlanViews", 0)
