"""MergeTransposes: merge chains of reshapes and transpositions into one transposition, or none.

Before::

    %0 = reshape(%x, newshape=[12, 128, 64]);          // %x: Tensor[(1, 12, 128, 64)]
    %1 = transpose(%0, axes=[1, 0, 2]);
    %2 = reshape(%1, newshape=[1, 128, 12, 64]);
    %3 = transpose(%2, axes=[0, 2, 1, 3]);
    reshape(%3, newshape=[12, 128, 64])

after::

    reshape(%x, newshape=[12, 128, 64])

Each extent is factorized as the reshapes of the chain split it; the chain is then a permutation of these factors. A
transposition that only moves extents of 1 is a reshape, which costs nothing. Extents may have names (``extents.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from tilewright.ir.expr import RelayExpr
from tilewright.ir.transform import Pass
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call
from tilewright.relay.op.transform.axes import Transpose
from tilewright.relay.op.views import is_reshape
from tilewright.relay.transform.common import call_of, known_dims, open_children, typed_function_pass
from tilewright.relay.transform.simplify.extents import ONE, Extent, known_extents, product, reshape_codes
from tilewright.relay.visitor import ExprRewriter

_LONGEST = 16  # moves that are looked at together


class Movement:
    """A chain of moves as a permutation of factors; ``source`` and ``order`` number them before and after."""

    def __init__(self, shape: Sequence[int | Extent]) -> None:
        extents = [Extent.of(n) for n in shape]
        self.sizes = [n for n in extents if not n.is_one]
        self.source = list(range(len(self.sizes)))
        numbers = iter(self.source)
        self.dims = [[] if n.is_one else [next(numbers)] for n in extents]

    @property
    def order(self) -> list[int]:
        """Return the factors after all moves, outermost first."""
        return [f for dim in self.dims for f in dim]

    def transpose(self, axes: Sequence[int]) -> None:
        """Permute the dimensions."""
        self.dims = [self.dims[a] for a in axes]

    def reshape(self, shape: Sequence[int | Extent]) -> bool:
        """Change the dimensions; return False where an extent is no product of factors."""
        left, dims = self.order[::-1], []
        for wanted in shape:
            extent, dim = Extent.of(wanted), list[int]()
            while not extent.is_one:
                if not left:
                    return False
                factor = left.pop()
                rest = extent.over(self.sizes[factor])
                if rest is None:
                    inner = self.sizes[factor].over(extent)
                    if inner is None:
                        return False
                    left.append(self._split(factor, extent, inner))
                    rest = ONE
                extent = rest
                dim.append(factor)
            dims.append(dim)
        self.dims = dims
        return not left

    def _split(self, factor: int, outer: Extent, inner: Extent) -> int:
        """Split a factor: it keeps ``outer``; return the number of the ``inner`` one."""
        self.sizes.append(inner)
        self.sizes[factor] = outer
        self.source.insert(self.source.index(factor) + 1, len(self.sizes) - 1)
        return len(self.sizes) - 1

    def runs(self) -> list[list[int]]:
        """Return the factors after all moves, with those merged that are adjacent before and after."""
        place = {factor: k for k, factor in enumerate(self.source)}
        runs: list[list[int]] = []
        for factor in self.order:
            if runs and place[factor] == place[runs[-1][-1]] + 1:
                runs[-1].append(factor)
            else:
                runs.append([factor])
        return runs


class _Merger(ExprRewriter):
    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        chain = _chain(pre)
        if not any(map(_is_transpose, chain)):
            return post
        base = chain[-1].args[0]
        final, start = known_extents(known_dims(pre)), known_extents(known_dims(base))
        movement = _movement(chain)
        if movement is None or final is None or start is None:
            return post
        runs = movement.runs()
        if len(runs) > 1 and sum(map(_is_transpose, chain)) < 2:
            return post
        place = {factor: k for k, factor in enumerate(movement.source)}
        ranked = sorted(range(len(runs)), key=lambda k: place[runs[k][0]])
        if len(runs) <= 1:  # none of a single element
            return _reshaped(self.visit(base), start, final) or post
        extents = [product([movement.sizes[f] for f in runs[k]]) for k in ranked]
        result = _reshaped(self.visit(base), start, extents)
        if result is None:
            return post
        axes = [ranked.index(k) for k in range(len(runs))]
        return _reshaped(relay_op.transpose(result, axes=axes), [extents[k] for k in axes], final) or post


def _reshaped(expr: RelayExpr, have: list[Extent], want: list[Extent]) -> RelayExpr | None:
    if have == want:
        return expr
    codes = reshape_codes(have, want)
    return None if codes is None else relay_op.reshape(expr, newshape=codes)


def _is_transpose(expr: RelayExpr) -> TypeGuard[Call]:
    return call_of(expr, Transpose.op) is not None


def _chain(expr: RelayExpr) -> list[Call]:
    """Return the moves that end with ``expr``, last first."""
    chain: list[Call] = []
    while len(chain) < _LONGEST:
        if not (is_reshape(expr) or _is_transpose(expr)) or not known_dims(expr) or not known_dims(expr.args[0]):
            break
        chain.append(expr)
        expr = expr.args[0]
    return chain


def _movement(chain: Sequence[Call]) -> Movement | None:
    start = known_extents(known_dims(chain[-1].args[0]))
    if start is None:
        return None
    movement = Movement(start)
    for move in reversed(chain):
        attrs: Any = move.attrs
        shape = known_extents(known_dims(move))
        if _is_transpose(move):
            rank = len(shape or ())
            movement.transpose([int(a) % rank for a in attrs.axes or range(rank - 1, -1, -1)])
        elif shape is None or not movement.reshape(shape):
            return None
    return movement


def MergeTransposes() -> Pass:
    """Merge the transpositions of every chain of moves."""

    return typed_function_pass(lambda func, mod, ctx: _Merger().visit(func), "MergeTransposes", 3)
