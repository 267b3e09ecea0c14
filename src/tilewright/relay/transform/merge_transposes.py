"""MergeTransposes: chains of reshapes and transpositions become one transposition, or none.

Before::

    %0 = reshape(%x, newshape=[12, 128, 64]);          // %x: Tensor[(1, 12, 128, 64)]
    %1 = transpose(%0, axes=[1, 0, 2]);
    %2 = reshape(%1, newshape=[1, 128, 12, 64]);
    %3 = transpose(%2, axes=[0, 2, 1, 3]);
    reshape(%3, newshape=[12, 128, 64])

after::

    reshape(%x, newshape=[12, 128, 64])

Each extent is taken apart into the factors that the reshapes of the chain make of it; what the chain does is a
permutation of these factors. A transposition that only moves extents of 1 is a reshape, which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function
from tilewright.relay.op.views import is_reshape
from tilewright.relay.transform.common import call_of, concrete_shape, open_children, typed_function_pass
from tilewright.relay.visitor import ExprRewriter

_LONGEST = 16  # moves that are looked at together


class Movement:
    """A chain of moves as a permutation of factors; ``source`` and ``order`` number them before and after."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.sizes = [n for n in shape if n != 1]
        self.source = list(range(len(self.sizes)))
        numbers = iter(self.source)
        self.dims = [[] if n == 1 else [next(numbers)] for n in shape]

    @property
    def order(self) -> list[int]:
        """The factors after all moves, the outermost first."""
        return [f for dim in self.dims for f in dim]

    def transpose(self, axes: Sequence[int]) -> None:
        """Reorder the dimensions."""
        self.dims = [self.dims[a] for a in axes]

    def reshape(self, shape: Sequence[int]) -> bool:
        """Give the elements new dimensions; False where an extent is no product of factors."""
        left, dims = self.order[::-1], []
        for extent in shape:
            dim: list[int] = []
            while extent > 1:
                if not left:
                    return False
                factor = left.pop()
                size = self.sizes[factor]
                if size > extent and size % extent == 0:
                    left.append(self._split(factor, extent))
                    size = extent
                if extent % size:
                    return False
                extent //= size
                dim.append(factor)
            dims.append(dim)
        self.dims = dims
        return not left

    def _split(self, factor: int, outer: int) -> int:
        """Split a factor: it keeps ``outer``; gives the number of the inner rest."""
        self.sizes.append(self.sizes[factor] // outer)
        self.sizes[factor] = outer
        self.source.insert(self.source.index(factor) + 1, len(self.sizes) - 1)
        return len(self.sizes) - 1

    def runs(self) -> list[list[int]]:
        """The factors after all moves, neighbours before and after together."""
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
        if not any(call_of(move, "transpose") is not None for move in chain):
            return post
        final, base = concrete_shape(pre), chain[-1].args[0]
        movement = _movement(chain)
        if movement is None or final is None:
            return post
        runs = movement.runs()
        moves = [1 for move in chain if call_of(move, "transpose") is not None]
        if len(runs) > 1 and len(moves) < 2:
            return post
        place = {factor: k for k, factor in enumerate(movement.source)}
        ranked = sorted(range(len(runs)), key=lambda k: place[runs[k][0]])
        result = self.visit(base)
        if len(runs) > 1:
            extents = [math.prod(movement.sizes[f] for f in runs[k]) for k in ranked]
            result = _reshaped(result, concrete_shape(base), tuple(extents))
            result = relay_op.transpose(result, axes=[ranked.index(k) for k in range(len(runs))])
            moved: tuple[int, ...] | None = tuple(extents[ranked.index(k)] for k in range(len(runs)))
        else:
            moved = concrete_shape(base)
        return _reshaped(result, moved, final)


def _reshaped(expr: RelayExpr, have: tuple[int, ...] | None, want: tuple[int, ...]) -> RelayExpr:
    return expr if have == want else relay_op.reshape(expr, newshape=want)


def _chain(expr: RelayExpr) -> list[Call]:
    """The moves that end with ``expr``, last first."""
    chain: list[Call] = []
    while len(chain) < _LONGEST:
        call = expr if is_reshape(expr) else call_of(expr, "transpose")
        if call is None or not concrete_shape(call) or not concrete_shape(call.args[0]):
            break
        chain.append(call)
        expr = call.args[0]
    return chain


def _movement(chain: Sequence[Call]) -> Movement | None:
    start = concrete_shape(chain[-1].args[0])
    if start is None or 0 in start:
        return None
    movement = Movement(start)
    for move in reversed(chain):
        attrs: Any = move.attrs
        shape = concrete_shape(move)
        if call_of(move, "transpose") is not None:
            rank = len(shape or ())
            movement.transpose([int(a) % rank for a in attrs.axes or range(rank - 1, -1, -1)])
        elif shape is None or not movement.reshape(shape):
            return None
    return movement


def MergeTransposes() -> Pass:
    """Merge the transpositions of every chain of moves."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Merger().visit(func)

    return typed_function_pass(run, "MergeTransposes", 3)
