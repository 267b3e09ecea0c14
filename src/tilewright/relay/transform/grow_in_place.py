"""GrowInPlace and MarkRoom: what a program appends to one of its parameters and gives back grows in its memory.

Before, where ``%past`` is a parameter of main::

    %0 = (%past, %new);                        // (1, 12, past, 64) and (1, 12, 1, 64)
    %1 = concatenate(%0, axis=2);
    %2 = nn.attention(%q, %1, %v);
    (%2, %1)

after GrowInPlace::

    %1 = vm.append(%past, %new, axis=2);
    %2 = nn.attention(%q, %1, %v);
    (%2, %1)

The virtual machine appends without copying ``%past`` where its memory has room behind it, as that of an earlier result
has (``native/src/vm/append.c``). Tensors in such memory have the strides of the whole: once kernels are fused, MarkRoom
notes on each, as the attribute ``room``, which of its parameters may have them, and on main, as ``takes_room``, which
inputs; code generation gives their buffers strides.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Function, Let, Tuple, Var
from tilewright.relay.op.vm import append
from tilewright.relay.transform.common import TypedMutator, call_of, is_closed, open_children
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, post_order
from tilewright.runtime.device import cpu
from tilewright.target.target import Target

ROOM = "room"  # of a primitive function: pairs of a parameter's index and the axis along which it has room
TAKES_ROOM = "takes_room"  # of main: the indices of parameters

_Axes = dict[RelayExpr, int]


def GrowInPlace() -> Pass:
    """Turn concatenations that extend a parameter of main into ``vm.append``, on the CPU."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        main = mod["main"]
        target = Target.current()
        if not isinstance(main, Function) or (target is not None and target.device_type != cpu().device_type):
            return mod
        found = _growing(main)
        if not found:
            return mod
        changed = mod.copy()
        changed["main"] = _Appender(found).visit(main)
        return infer_module(changed)

    return ModulePass(run, PassInfo(0, "GrowInPlace"))


def _growing(main: Function) -> _Axes:
    """The concatenations that are an output and begin with a parameter, with their axes."""
    results = set(main.body.fields if isinstance(main.body, Tuple) else (main.body,))
    nodes = [e for e in post_order(main.body, open_children)]
    found: _Axes = {}
    for node in nodes:
        call = call_of(node, "concatenate")
        if call is None or node not in results or not isinstance(parts := call.args[0], Tuple):
            continue
        type_ = node.checked_type
        if len(parts.fields) != 2 or parts.fields[0] not in main.params or not isinstance(type_, TensorType):
            continue
        axis = int(call.attrs.axis) % len(type_.shape)  # type: ignore[union-attr]
        past = parts.fields[0].checked_type
        assert isinstance(past, TensorType)
        if not isinstance(past.shape[axis], IntImm) and dt.nbytes(type_.dtype) * 8 == dt.bits(type_.dtype):
            found[node] = axis
    for node in nodes:
        if node is not main.body:
            _drop_unfit(node, found)
    return found


def _drop_unfit(node: RelayExpr, found: _Axes) -> None:
    """Leave out what ``node`` reads that must be compact there: operators alone become kernels that take strides."""
    if isinstance(node, Call) and isinstance(node.op, Op) and not node.op.get_attr("TNonComputational"):
        return
    children = open_children(node)
    for concatenation in list(found):
        call = call_of(concatenation, "concatenate")
        assert call is not None
        parts = call.args[0]
        assert isinstance(parts, Tuple)
        if node is not parts and any(value in children for value in (concatenation, parts.fields[0])):
            del found[concatenation]


class _Appender(TypedMutator):
    def __init__(self, found: Mapping[RelayExpr, int]) -> None:
        super().__init__()
        self.found = found

    def visit_call(self, expr: Call) -> RelayExpr:
        if expr not in self.found:
            return super().visit_call(expr)
        parts = expr.args[0]
        assert isinstance(parts, Tuple)
        past, more = (self.visit(part) for part in parts.fields)
        return append(past, more, self.found[expr])


def MarkRoom() -> Pass:
    """Note which parameters of fused functions, and of main, may lie in memory with room."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        main = mod["main"]
        assert isinstance(main, Function)
        axes: dict[Var, int] = {}
        lets = []
        body = main.body
        while isinstance(body, Let):
            lets.append(body)
            body = body.body
        for let in lets:
            call = call_of(let.value, "vm.append")
            if call is not None and isinstance(past := call.args[0], Var):
                axes[past] = axes[let.var] = int(call.attrs.axis)  # type: ignore[union-attr]
        if not axes:
            return mod
        changed = mod.copy()
        marked = _Marker(axes).visit(main)
        assert isinstance(marked, Function)
        taken = tuple(i for i, param in enumerate(main.params) if param in axes)
        changed["main"] = marked.with_attr(TAKES_ROOM, taken)
        return infer_module(changed)

    return ModulePass(run, PassInfo(0, "MarkRoom"))


class _Marker(ExprMutator):
    def __init__(self, axes: Mapping[Var, int]) -> None:
        super().__init__()
        self.axes = axes

    def visit_function(self, expr: Function) -> RelayExpr:
        return expr if is_closed(expr) else super().visit_function(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        assert isinstance(post, Call)
        if not is_closed(post.op):
            return post
        assert isinstance(post.op, Function)
        room = tuple((i, self.axes[a]) for i, a in enumerate(expr.args) if isinstance(a, Var) and a in self.axes)
        return post.replace(op=post.op.with_attr(ROOM, room)) if room else post
