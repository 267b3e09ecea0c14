"""Parts of a call's result: which parts of the operands each depends on, by the rules of operators."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.expr import Call, Tuple
from tilewright.relay.op import slice_rules
from tilewright.relay.op.slice_rules import Cut, Part
from tilewright.relay.transform.common import concrete_shape


def operands_of(call: Call) -> list[RelayExpr]:
    """Return the arguments of a call; a tuple that is written out counts as its fields."""
    return [item for arg in call.args for item in (arg.fields if isinstance(arg, Tuple) else [arg])]


def with_operands(call: Call, operands: Sequence[RelayExpr], part: Part) -> Call:
    """Return the call that computes a part of ``call``'s result, on parts of its operands."""
    left = iter(operands)
    args = [Tuple([next(left) for _ in arg.fields]) if isinstance(arg, Tuple) else next(left) for arg in call.args]
    return Call(call.op, args, part.attrs, (), call.span)


def part_of(call: Call, cut: Cut, in_bands: bool = False) -> Part | None:
    """Return how to compute the part of the result; None where that depends on all of the operands, or is unknown.

    ``in_bands``: parts of the operands for neighbouring cuts may overlap, which computes some elements twice.
    """
    shape, operands = concrete_shape(call), [concrete_shape(a) for a in operands_of(call)]
    known = [s for s in operands if s is not None]
    if shape is None or not known or len(known) != len(operands) or not isinstance(call.op, Op):
        return None
    rule: slice_rules.Rule | None = call.op.get_attr("FSliceOperands")
    if rule is None and in_bands:
        rule = call.op.get_attr("FBandOperands")
    if rule is None and slice_rules.is_element_wise(call):
        rule = slice_rules.element_wise
    return None if rule is None else rule(call, cut, shape, known)


def widened(call: Call, cut: Cut, most: int) -> tuple[Cut, Part] | None:
    """Return the smallest cut around ``cut`` that can be computed in bands, by at most ``most`` elements at each end.

    Where a row of an operand becomes several of the result, a cut is of all of them.
    """
    shape = concrete_shape(call)
    for more in range(2 * most + 1) if shape is not None else ():
        for before in range(max(0, more - most), min(more, most) + 1):
            assert shape is not None
            begin, end = cut.begin - before, cut.end + more - before
            if begin >= 0 and end <= shape[cut.axis]:
                wider = Cut(cut.axis, begin, end)
                part = part_of(call, wider, in_bands=True)
                if part is not None:
                    return wider, part
    return None
