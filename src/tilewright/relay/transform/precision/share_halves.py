"""ShareHalves: store a tensor that products read in bfloat16 only so.

Before, where ``NarrowFactors`` rounded the data of a convolution::

    %0 = nn.relu(%c);
    %1 = nn.conv2d(cast(%0, dtype="bfloat16"), %w, out_dtype="float32");
    add(%1, %0)

after::

    %0 = cast(nn.relu(%c), dtype="bfloat16");
    %1 = nn.conv2d(%0, %w, out_dtype="float32");
    add(%1, cast(%0, dtype="float32"))

Kernels then write and read half the bytes; they compute in float32 as before. Operators that only move numbers, or pick
the largest, take rounded ones: the cast goes before them. Where the sums of two products are added, the second is
stored, and read by the kernel of the first: it is rounded too. What the caller of the function gets is not rounded.

The data of dense layers, attention and batched products is stored so only where all readers round it, perhaps after
moving it: sums and means of a transformer stay float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant, Function, Tuple
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.nn.attention import Attention
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.dense import BatchMatmul, Dense
from tilewright.relay.op.tensor.unary import Cast, cast
from tilewright.relay.op.transform.join import Concatenate
from tilewright.relay.transform.common import call_of, open_children, pattern_of, trait_of, typed_function_pass
from tilewright.relay.visitor import ExprMutator, post_order

_HALF, _WIDE = "bfloat16", "float32"
_PRODUCTS = (Dense.op, Attention.op, BatchMatmul.op)


def _dtype(expr: RelayExpr) -> str:
    type_ = expr.checked_type
    return type_.dtype if isinstance(type_, TensorType) else ""


def _rounded_value(expr: RelayExpr) -> RelayExpr | None:
    """Return the float32 that ``expr`` casts to bfloat16; None where it does not."""
    found = call_of(expr, Cast.op)
    return found.args[0] if found and (_dtype(found), _dtype(found.args[0])) == (_HALF, _WIDE) else None


def _moved(expr: RelayExpr) -> Sequence[RelayExpr]:
    """Return the tensors whose elements those of ``expr`` are; none where an operator computes."""
    if not isinstance(expr, Call):
        return ()
    picks = trait_of(expr, "TChannelwise") and not trait_of(expr, "TInFloat32")  # adds nothing up: it picks the largest
    if expr.op is not Concatenate.op and not picks and not trait_of(expr, "TMovesData"):
        return ()
    first = expr.args[0]
    if isinstance(first, Tuple):
        return first.fields
    return [first] if isinstance(first.checked_type, TensorType) else ()


def _shared(func: Function) -> set[RelayExpr]:
    """Return the values, results of operators, that are stored in bfloat16."""
    readers: dict[RelayExpr, list[RelayExpr]] = {}
    order = post_order(func, open_children)
    for node in order:
        for child in open_children(node):
            readers.setdefault(child, []).append(node)

    def is_read(user: RelayExpr) -> bool:
        """Whether an operator reads a value here, not the caller of the function."""
        return isinstance(user, Call) or (isinstance(user, Tuple) and all(map(_joins, readers.get(user, [user]))))

    def is_inside(value: RelayExpr) -> bool:
        return isinstance(value, Call) and _dtype(value) == _WIDE and all(map(is_read, readers[value]))

    pending = [
        value
        for node in order
        if isinstance(node, Call) and node.op is Conv2D.op and (value := _rounded_value(node.args[0])) is not None
    ]
    shared: set[RelayExpr] = set()
    for value in pending:
        if value not in shared and is_inside(value):
            shared.add(value)
            pending.extend(_moved(value))
            pending.extend(v for v in [_second_product(value)] if v is not None and len(readers[v]) == 1)
    return shared | _rounded_by_all(order, readers)


def _rounded_by_all(order: Sequence[RelayExpr], readers: Mapping[RelayExpr, Sequence[RelayExpr]]) -> set[RelayExpr]:
    """Return the factors of products, and what they are moved from, that each reader rounds."""

    def is_rounded(value: RelayExpr) -> bool:
        return (
            isinstance(value, Call)
            and _dtype(value) == _WIDE
            and all(
                _rounded_value(user) is value or (trait_of(user, "TMovesData") and is_rounded(user))
                for user in readers.get(value, (value,))
            )
        )

    pending = [
        value
        for node in order
        if isinstance(node, Call) and node.op in _PRODUCTS
        for value in map(_rounded_value, node.args)
        if value is not None
    ]
    found: set[RelayExpr] = set()
    for value in pending:
        if value not in found and is_rounded(value):
            found.add(value)
            pending.extend(_moved(value))
    return found


def _before(value: RelayExpr) -> Sequence[RelayExpr]:
    """Return the tensors, no constants, that an operator on single elements takes; none of another expression."""
    if not isinstance(value, Call) or pattern_of(value) > OpPattern.BROADCAST:
        return ()
    return [arg for arg in value.args if not isinstance(arg, Constant)]


def _product(value: RelayExpr) -> tuple[RelayExpr, Sequence[RelayExpr]]:
    """Return what ``value`` is made of by operators on single elements of one tensor, and what that takes."""
    while len(before := _before(value)) == 1:
        value = before[0]
    return value, before


def _second_product(value: RelayExpr) -> RelayExpr | None:
    """Return the second of two results of convolutions, sums of which ``value`` is made; None of others."""
    operands = _product(value)[1]
    sums = [_product(operand)[0] for operand in operands]
    both = len(sums) == 2 and all(call_of(s, Conv2D.op) is not None for s in sums)
    return operands[1] if both else None


def _joins(user: RelayExpr) -> bool:
    return call_of(user, Concatenate.op) is not None


class _Sharer(ExprMutator):
    """Rewriter in which every reader of a shared value reads its cast from bfloat16."""

    def __init__(self, shared: set[RelayExpr]) -> None:
        super().__init__()
        self.shared = shared
        self.halves: dict[RelayExpr, RelayExpr] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        value = _rounded_value(expr)
        if value is not None and value in self.shared:
            return self.halves[value]
        args = [self._read(arg) for arg in expr.args]
        made = Call(self.visit(expr.op), args, expr.attrs, expr.type_args, expr.span)
        if expr in self.shared:
            self.halves[expr] = self._rounded(expr, made)
        return made

    def visit_tuple(self, expr: Tuple) -> RelayExpr:
        return Tuple([self._read(field) for field in expr.fields], expr.span)

    def _read(self, arg: RelayExpr) -> RelayExpr:
        """Return an operand; each reader widens a shared value by a cast of its own, which fuses with it."""
        return cast(self.halves[arg], _WIDE) if arg in self.shared else self.visit(arg)

    def _rounded(self, value: Call, made: Call) -> RelayExpr:
        """Return the rounded form of ``value``, which is rewritten to ``made``."""
        moved = _moved(value)
        if call_of(value, Cast.op) is not None and _dtype(value.args[0]) == _HALF:
            return made.args[0]
        if not moved:
            return cast(made, _HALF)
        halves = [self.halves[v] if v in self.shared else cast(self.visit(v), _HALF) for v in moved]
        first = [Tuple(halves)] if isinstance(value.args[0], Tuple) else halves
        return Call(value.op, [*first, *made.args[1:]], value.attrs, value.type_args, value.span)


def ShareHalves() -> Pass:
    """Store tensors that products read in bfloat16 only so."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        shared = _shared(func)
        return _Sharer(shared).visit(func) if shared else func

    return typed_function_pass(run, "ShareHalves", 1)
