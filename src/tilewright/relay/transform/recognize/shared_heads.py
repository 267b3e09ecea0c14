"""Keys and values that are repeated for the heads of a group, found before their repetition.

Before, as Hugging Face's ``repeat_kv`` is imported, where 4 heads share 2 groups::

    %0 = expand_dims(%k, axis=2);                      // (1, 2, 1, 7, 16)
    %1 = repeat(%0, repeats=2, axis=2);                // or broadcast_to
    %2 = reshape(%1, newshape=[1, 4, 7, 16]);
    nn.attention(%q, %2, ...)

after::

    nn.attention(%q, %k, ...)

Between the repetition and the attention there may be reshapes, transpositions of the matrices, casts and scaling: these
are applied to what was repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay import op
from tilewright.relay.expr import Call, scalar_value
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.transform.axes import Transpose, TransposeAttrs
from tilewright.relay.op.transform.replicate import BroadcastTo, Repeat
from tilewright.relay.op.views import is_reshape
from tilewright.relay.transform.common import call_of, known_dims
from tilewright.relay.transform.simplify.extents import Extent, known_extents, product, reshape_codes
from tilewright.relay.type_infer import infer_expr

_MOST_STEPS = 16

Step = Callable[[RelayExpr], RelayExpr]


def shared_by_heads(query: RelayExpr, *tensors: RelayExpr) -> list[RelayExpr] | None:
    """Return keys and values, (batch, groups, rows, columns), of (batch, heads, rows, columns) that repeat each group.

    Return None unless all repeat by the same number.
    """
    dims = known_extents(known_dims(query))
    found = [_before_repeat(x) for x in tensors]
    counts = {r[1] for r in found if r is not None}
    if dims is None or None in found or len(counts) != 1 or dims[1].names or dims[1].number % min(counts):
        return None
    lead = [dims[0], Extent(dims[1].number // min(counts))]
    made = [_by_groups(source, lead, steps) for source, _, steps in found]  # type: ignore[misc]
    return None if None in made else made  # type: ignore[return-value]


def _by_groups(source: RelayExpr, lead: list[Extent], steps: Sequence[Step]) -> RelayExpr | None:
    while is_reshape(source) and _same_matrices(source, source.args[0]):
        source = source.args[0]
    have = known_extents(known_dims(source))
    if have is None or product(have[:-2]) != product(lead):
        return None
    want = [*lead, *have[-2:]]
    if have != want:
        codes = reshape_codes(have, want)
        if codes is None:
            return None
        source = op.reshape(source, newshape=codes)
    for step in reversed(steps):
        source = step(source)
    return infer_expr(source)


def _before_repeat(expr: RelayExpr) -> tuple[RelayExpr, int, list[Step]] | None:
    """Return what matrices repeat, how often each follows itself, and the steps behind the repetition, last first."""
    steps: list[Step] = []
    for _ in range(_MOST_STEPS):
        if not isinstance(expr, Call) or not isinstance(expr.op, Op):
            return None
        if (count := _repeats(expr)) is not None:
            return expr.args[0], count, steps
        if is_reshape(expr):
            if not _same_matrices(expr, expr.args[0]):
                return None
            expr = expr.args[0]
            continue
        step, operand = _step(expr)
        if step is None:
            return None
        steps.append(step)
        expr = expr.args[operand]
    return None


def _same_matrices(a: RelayExpr, b: RelayExpr) -> bool:
    ends = [(known_dims(x) or ())[-2:] for x in (a, b)]
    return len(ends[0]) == 2 and ends[0] == ends[1]


def _repeats(call: Call) -> int | None:
    """Return how many equal matrices follow one another in a call, of one each in its operand."""
    if call_of(call, Repeat.op) is None and call_of(call, BroadcastTo.op) is None:
        return None
    old, new = known_dims(call.args[0]), known_dims(call)
    if old is None or new is None or len(old) != len(new):
        return None
    changed = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a is not b and a != b]
    if len(changed) != 1 or any(d != 1 for d in new[changed[0] + 1 : -2]) or changed[0] >= len(new) - 2:
        return None
    had, has = old[changed[0]], new[changed[0]]
    known = isinstance(had, int) and isinstance(has, int) and had > 0 and has % had == 0
    return has // had if known else None


def _step(call: Call) -> tuple[Step | None, int]:
    """Return what an operator does to each matrix, and which operand they are; None where it mixes them."""
    if (dims := known_dims(call)) is None:
        return None, 0
    if call_of(call, Transpose.op) is not None:
        attrs, rank = cast(TransposeAttrs, call.attrs), len(dims)
        axes = [int(a) % rank for a in attrs.axes or range(rank)[::-1]]
        turned = [*range(rank - 2), rank - 1, rank - 2]
        return (lambda x: op.transpose(x, axes=[0, 1, 3, 2])) if axes == turned else None, 0
    assert isinstance(call.op, Op)
    if call.op.get_attr("TOpPattern") not in (OpPattern.ELEMWISE, OpPattern.BROADCAST):
        return None, 0
    tensors = [i for i, arg in enumerate(call.args) if scalar_value(arg) is None]
    numbers = [known_dims(arg) or () for i, arg in enumerate(call.args) if i not in tensors]
    if len(tensors) != 1 or dims != known_dims(call.args[tensors[0]]) or any(map(len, numbers)):
        return None, 0
    at = tensors[0]
    return (lambda x: call.replace(args=[x if i == at else a for i, a in enumerate(call.args)])), at
