"""MemoryPlan: merge the storage of ManifestAlloc into regions, shared by tensors that do not live at the same time.

Before::

    let %storage = memory.alloc_storage(512i64, 64i64, ...);
    let %x = memory.alloc_tensor(%storage, 0i64, ...);
    let %storage1 = memory.alloc_storage(256i64, 64i64, ...);
    let %y = memory.alloc_tensor(%storage1, 0i64, ...);
    ...

after::

    let %region = memory.alloc_storage(768i64, 64i64, ...);
    let %x = memory.alloc_tensor(%region, 0i64, ...);
    let %y = memory.alloc_tensor(%region, 512i64, ...);
    ...

Storage is planned where only kernels called by the same chain of lets read and write its tensors: it then lives from
its allocation until the last of them. A tensor that escapes keeps its own memory, which its user frees; so does a
tensor on another device than the CPU, whose kernels take no offsets. Regions do not extend across calls of functions,
branches and matches, so that recursion holds no more memory than before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.relay.adt import Match
from tilewright.relay.expr import Call, Constant, Function, If, Let, Tuple, Var, const
from tilewright.relay.lets import Binding, let_chain, with_lets
from tilewright.relay.op.memory import AllocStorage, AllocTensor
from tilewright.relay.op.vm import InvokeTVMOp
from tilewright.relay.transform.common import LetChainMutator, call_of, open_children, scalar_constant
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import is_closed, post_order
from tilewright.runtime.device import cpu


def MemoryPlan() -> Pass:
    """Share memory between the results of kernels."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        result = mod.copy()
        changed = False
        for var, func in mod.functions.items():
            if isinstance(func, Function) and not is_closed(func):
                body = _Planner().visit(func.body)
                changed = changed or body is not func.body
                result[var] = func if body is func.body else func.replace(body=body)
        return infer_module(result) if changed else mod

    return ModulePass(run, PassInfo(0, "MemoryPlan"))


@dataclass(eq=False)
class Life:
    """A piece of memory: the step that allocates it, its size in bytes, the last step that uses it, its offset in a
    region.
    """

    first: int
    nbytes: int
    last: int
    offset: int = field(default=0, kw_only=True)


@dataclass(eq=False)
class _Piece(Life):
    """A piece of memory that a program allocates."""

    var: Var
    call: Call
    alignment: int
    escapes: bool = False
    tensors: list[Var] = field(default_factory=list)

    @property
    def device(self) -> tuple[int, int]:
        """Return the device, whose memory is planned together."""
        attrs = self.call.attrs
        return attrs.device_type, attrs.device_id  # type: ignore[union-attr]


class _Planner(LetChainMutator):
    """Rewriter of whole chains of lets."""

    def visit_let(self, expr: Let) -> RelayExpr:
        old, old_tail = let_chain(expr)
        bindings, tail = [(var, self.visit(value)) for var, value in old], self.visit(old_tail)
        planned = _planned(bindings, tail)
        same = len(planned) == len(old) and all(a[1] is b[1] for a, b in zip(planned, old, strict=True))
        if same and tail is old_tail:
            return expr
        return with_lets(planned, tail)


def _planned(bindings: list[Binding], tail: RelayExpr) -> list[Binding]:
    """Return the chain with its regions."""
    barriers = [step for step, (_, value) in enumerate(bindings) if _runs_other_code(value)]
    groups: dict[tuple[tuple[int, int], int], list[_Piece]] = {}
    for piece in _pieces(bindings, tail):
        before = sum(step < piece.first for step in barriers)
        shared = piece.tensors and not piece.escapes and piece.device[0] == cpu().device_type
        if shared and before == sum(step < piece.last for step in barriers):
            groups.setdefault((piece.device, before), []).append(piece)
    result: list[list[Binding]] = [[binding] for binding in bindings]
    for group in groups.values():
        if len(group) > 1:
            _share(group, bindings, result)
    return [binding for step in result for binding in step]


def _runs_other_code(value: RelayExpr) -> bool:
    """Return whether computing a value runs more than kernels."""
    if isinstance(value, Call):
        return not isinstance(value.op, Op) and not is_closed(value.op)
    return isinstance(value, (If, Match))


def _pieces(bindings: list[Binding], tail: RelayExpr) -> list[_Piece]:
    """Return the pieces of known sizes, with their lifetimes."""
    pieces: dict[Var, _Piece] = {}
    owners: dict[RelayExpr, _Piece] = {}
    for step, (var, value) in enumerate(bindings):
        if (alloc := call_of(value, AllocStorage.op)) and all(isinstance(a, Constant) for a in alloc.args):
            nbytes, alignment = (int(scalar_constant(arg) or 0) for arg in alloc.args)
            pieces[var] = owners[var] = _Piece(step, nbytes, step, var, alloc, alignment)
            continue
        for used in _uses_by_kernels(value, pieces):
            if used in owners:
                owners[used].last = step
        if call_of(value, AllocTensor.op) and (owner := pieces.get(value.args[0])):  # type: ignore[attr-defined]
            owners[var] = owner
            owner.tensors.append(var)
            owner.last = step
        for other in _other_uses(value, pieces):
            if other in owners:
                owners[other].escapes = True
    for other in _other_uses(tail, pieces):
        if other in owners:
            owners[other].escapes = True
    return list(pieces.values())


def _uses_by_kernels(value: RelayExpr, pieces: dict[Var, _Piece]) -> list[RelayExpr]:
    """Return the tensors that a kernel's call reads and writes."""
    call = call_of(value, InvokeTVMOp.op)
    if call is None:
        return []
    return [field for arg in call.args[1:] if isinstance(arg, Tuple) for field in arg.fields]


def _other_uses(value: RelayExpr, pieces: dict[Var, _Piece]) -> list[RelayExpr]:
    """Return all other uses in a value; a storage only where a tensor is not simply allocated in it."""
    if call_of(value, InvokeTVMOp.op):
        parts = [a for a in value.args if not isinstance(a, Tuple)]  # type: ignore[attr-defined]
    elif call_of(value, AllocTensor.op) and isinstance(value.args[1], Constant):  # type: ignore[attr-defined]
        parts = [value.args[2]]  # type: ignore[attr-defined]
    else:
        parts = [value]
    return [e for part in parts for e in post_order(part, open_children) if isinstance(e, Var)]


def _share(group: list[_Piece], bindings: list[Binding], result: list[list[Binding]]) -> None:
    """Put a group's pieces into one region, and rewrite them."""
    alignment = max(piece.alignment for piece in group)
    place(group, alignment)
    region = Var("region")
    total = max(piece.offset + piece.nbytes for piece in group)
    first = min(group, key=lambda piece: piece.first)
    whole = Call(first.call.op, [_number(total), _number(alignment)], first.call.attrs)
    for piece in group:
        result[piece.first] = [(region, whole)] if piece is first else []
    tensors = {var: piece for piece in group for var in piece.tensors}
    for step, (var, value) in enumerate(bindings):
        if var in tensors:
            assert isinstance(value, Call)
            offset = tensors[var].offset + int(scalar_constant(value.args[1]) or 0)
            result[step] = [(var, value.replace(args=(region, _number(offset), value.args[2])))]


def place(group: Sequence[Life], alignment: int, around: Sequence[Life] = ()) -> None:
    """Place each piece, largest first, at the lowest offset where no piece lives at the same time."""
    placed = list(around)
    for piece in sorted(group, key=lambda p: (-p.nbytes, p.first)):
        alive = [p for p in placed if p.first <= piece.last and piece.first <= p.last]
        for other in sorted(alive, key=lambda p: p.offset):
            if other.offset - piece.offset >= piece.nbytes:
                break
            end = -(-(other.offset + other.nbytes) // alignment) * alignment
            piece.offset = max(piece.offset, end)
        placed.append(piece)


def _number(value: int) -> Constant:
    return const(np.array(value, "int64"))
