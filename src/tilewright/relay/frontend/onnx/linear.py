"""Matrix products: Gemm, MatMul, Einsum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import is_number, same_element
from tilewright.relay.frontend.dynamic import (
    FAR,
    broadcast_elements,
    broadcast_shape,
    expand_to,
    joined,
    reshape_to,
    runtime_extent,
    runtime_shape,
)
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.registry import converter

# Stand for the axes of an ellipsis, the last axes last.
_ELLIPSIS = "STUVWXYZ"


@converter("Gemm", in_float32=True, weights=(1,))
def convert_gemm(ctx: NodeContext) -> RelayExpr:
    """``alpha * A' B' + beta * C``"""
    a, b = ctx.input(0), ctx.input(1)
    alpha, beta = ctx.attr("alpha", 1.0), ctx.attr("beta", 1.0)
    dtype = ctx.dtype(a)
    if ctx.attr("transA", 0):
        a = relay_op.transpose(a, axes=(1, 0))
    if not ctx.attr("transB", 0):
        b = relay_op.transpose(b, axes=(1, 0))
    if ctx.rank(a) != 2:
        a = relay_op.nn.batch_flatten(a)
    if alpha != 1.0:
        a = relay_op.multiply(a, const(alpha, dtype))
    units = ctx.dims(b)[0]
    out = relay_op.nn.dense(a, b, units=units if is_number(units) else None)
    bias = ctx.optional(2)
    if bias is None or beta == 0.0:
        return out
    if beta != 1.0:
        bias = relay_op.multiply(bias, const(beta, dtype))
    if ctx.rank(bias) == 1 and is_number(units) and ctx.extent(bias, 0) == units:
        return relay_op.nn.bias_add(out, bias, axis=-1)
    return relay_op.add(out, bias)


@converter("MatMul", in_float32=True, weights=(1,))
def convert_matmul(ctx: NodeContext) -> RelayExpr:
    """Product of matrices, with numpy's broadcasting of the leading dimensions."""
    return matmul(ctx, ctx.input(0), ctx.input(1))


def matmul(ctx: NodeContext, a: RelayExpr, b: RelayExpr, out_dtype: str = "") -> RelayExpr:
    """Numpy's ``matmul`` of two expressions, summed in ``out_dtype`` where that is not the operands' type."""
    a, b = typed(a), typed(b)
    shape_a, shape_b = ctx.dims(a), ctx.dims(b)
    if not shape_a or not shape_b:
        ctx.fail("MatMul takes no scalars")
    inner_a, inner_b = shape_a[-1], shape_b[-2] if len(shape_b) > 1 else shape_b[0]
    if is_number(inner_a) and is_number(inner_b) and inner_a != inner_b:
        ctx.fail(f"the inner dimensions of {shape_a} and {shape_b} differ: {inner_a} and {inner_b}")
    if len(shape_b) == 1:
        out = matmul(ctx, a, relay_op.expand_dims(b, axis=1), out_dtype)
        return relay_op.squeeze(out, axis=[-1])
    if len(shape_a) == 1:
        out = matmul(ctx, relay_op.expand_dims(a, axis=0), b, out_dtype)
        return relay_op.squeeze(out, axis=[-2])
    if not all(map(is_number, (*shape_a, *shape_b))):
        return _matmul_of_any_shape(ctx, a, b, shape_a, shape_b, out_dtype)
    if 0 in (*shape_a, *shape_b):  # the result has no elements, or each is a sum of none
        batch = np.broadcast_shapes(tuple(shape_a[:-2]), tuple(shape_b[:-2]))
        return relay_op.zeros((*batch, shape_a[-2], shape_b[-1]), out_dtype or ctx.dtype(a))
    if len(shape_b) == 2:
        rows = relay_op.reshape(a, newshape=(-1, shape_a[-1])) if len(shape_a) > 2 else a
        out = relay_op.nn.dense(rows, relay_op.transpose(b, axes=(1, 0)), units=shape_b[1], out_dtype=out_dtype)
        if len(shape_a) > 2:
            out = relay_op.reshape(out, newshape=(*shape_a[:-1], shape_b[1]))
        return out
    return _batch_matmul(ctx, a, b, shape_a, shape_b, out_dtype)


def _matmul_of_any_shape(
    ctx: NodeContext, a: RelayExpr, b: RelayExpr, shape_a: Sequence[Any], shape_b: Sequence[Any], out_dtype: str
) -> RelayExpr:
    """Return a product of matrices with dimensions that are known at run time only."""
    inner = shape_b[-2] if is_number(shape_b[-2]) else shape_a[-1]
    if len(shape_b) == 2:
        units = shape_b[1] if is_number(shape_b[1]) else None
        right = relay_op.transpose(b, axes=(1, 0))
        if len(shape_a) == 2:
            return relay_op.nn.dense(a, right, units=units, out_dtype=out_dtype)
        rows = reshape_to(ctx, a, [None, inner])
        product = relay_op.nn.dense(rows, right, units=units, out_dtype=out_dtype)
        return ctx.reshaped(product, a, 1, 0, len(shape_a) - 1)
    batch = broadcast_elements(shape_a[:-2], shape_b[:-2])
    whole = _leads(shape_a[:-2], shape_b[:-2]), _leads(shape_b[:-2], shape_a[:-2])
    leader = a if whole[0] else b if whole[1] else None
    wide = None
    flat = []
    for x, shape, leads in ((a, shape_a, whole[0]), (b, shape_b, whole[1])):
        if not leads and not all(is_number(d) and d == 1 for d in shape[:-2]):
            if wide is None:
                wide = (
                    broadcast_shape(_batch_of(a), len(shape_a) - 2, _batch_of(b), len(shape_b) - 2)
                    if leader is None
                    else _batch_of(leader)
                )
            tail = relay_op.strided_slice(runtime_shape(x), [-2], [FAR])
            x = typed(expand_to(ctx, x, [*batch, *shape[-2:]], relay_op.concatenate([wide, tail], axis=0)))
            leader = x if leader is None else leader
        flat.append(joined(x, [ctx.rank(x) - 2, 1, 1]))
    out = relay_op.nn.batch_matmul(flat[0], relay_op.transpose(flat[1], axes=(0, 2, 1)), out_dtype)
    if len(batch) == 1:
        return out
    if len(batch) == 2 and is_number(batch[1]) and batch[1] > 0:
        return relay_op.reshape(out, newshape=(-4, -1, batch[1], -2))
    assert leader is not None  # one of them has the batch, or was given it
    return ctx.reshaped(out, leader, 1, 0, len(batch))


def _leads(own: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether dimensions are known to be those of both when broadcast."""
    pairs = zip(own[::-1], other[::-1], strict=False)
    return len(own) >= len(other) and all(same_element(a, b) or same_element(b, 1) for a, b in pairs)


def _batch_of(x: RelayExpr) -> RelayExpr:
    """Return the dimensions before the last two."""
    return relay_op.strided_slice(runtime_shape(x), [0], [-2])


def _batch_matmul(
    ctx: NodeContext, a: RelayExpr, b: RelayExpr, shape_a: Sequence[int], shape_b: Sequence[int], out_dtype: str
) -> RelayExpr:
    batch = np.broadcast_shapes(tuple(shape_a[:-2]), tuple(shape_b[:-2]))

    def flatten(x: RelayExpr, shape: Sequence[int]) -> RelayExpr:
        if tuple(shape[:-2]) != batch and int(np.prod(shape[:-2])) != 1:
            x = relay_op.broadcast_to(x, (*batch, *shape[-2:]))
            shape = (*batch, *shape[-2:])
        count = int(np.prod(shape[:-2], dtype=np.int64))
        if len(shape) == 3:
            return x
        return relay_op.reshape(x, newshape=(count, shape[-2], shape[-1]))

    left = flatten(a, shape_a)
    right = relay_op.transpose(flatten(b, shape_b), axes=(0, 2, 1))
    out = relay_op.nn.batch_matmul(left, right, out_dtype)
    if len(batch) == 1:
        return out
    return relay_op.reshape(out, newshape=(*batch, shape_a[-2], shape_b[-1]))


@converter("Einsum", in_float32=True)
def convert_einsum(ctx: NodeContext) -> RelayExpr:
    """Einstein summation, by transposition, broadcasting, product and sum: of several operands, from left to right."""
    equation = str(ctx.required("equation")).replace(" ", "")
    terms, right = _einsum_terms(ctx, equation)
    operands = [_diagonal(ctx, ctx.input(i), t) for i, t in enumerate(terms)]
    if len(operands) == 1:
        return _einsum_one(*operands[0], right)
    made, term = operands[0]
    for place, (other, other_term) in enumerate(operands[1:], 2):
        later = right + "".join(term for _, term in operands[place:])
        kept = right if place == len(operands) else "".join(c for c in dict.fromkeys(term + other_term) if c in later)
        made, term = _einsum_two(ctx, typed(made), term, other, other_term, kept), kept
    return made


def _einsum_terms(ctx: NodeContext, equation: str) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result, with capitals for the axes of an ellipsis."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != ctx.num_inputs:
        ctx.fail(f"the equation {equation!r} is of {len(terms)} operands, and there are {ctx.num_inputs}")
    widest = ""
    for i, term in enumerate(terms):
        rank = ctx.rank(ctx.input(i))
        if "..." not in term:
            if len(term) != rank:
                ctx.fail(f"term {term!r} of {equation!r} has {len(term)} indices, but input {i} has rank {rank}")
            continue
        count = rank - len(term) + 3
        if not 0 <= count <= len(_ELLIPSIS):
            ctx.unsupported(f"Einsum {equation!r} with an input {i} of rank {rank}")
        letters = _ELLIPSIS[len(_ELLIPSIS) - count :]
        if set(letters) & set(equation):
            ctx.unsupported(f"Einsum {equation!r} with an ellipsis and the indices {letters!r}")
        widest = max(widest, letters, key=len)
        terms[i] = term.replace("...", letters)
    if not arrow:
        found = "".join(terms)
        right = "..." + "".join(sorted(c for c in set(found) - set(widest) if found.count(c) == 1))
    right = right.replace("...", widest)
    unknown = [c for c in right if c not in "".join(terms)]
    if unknown or len(set(right)) != len(right):
        what = f"{unknown[0]!r}, which no operand has" if unknown else "an index twice"
        ctx.fail(f"the result of the equation {equation!r} has {what}")
    return terms, right


def _diagonal(ctx: NodeContext, data: RelayExpr, term: str) -> tuple[RelayExpr, str]:
    """Return the diagonal of axes with one index: every (n + 1)-th entry of the two, flattened."""
    while len(set(term)) != len(term):
        letter = next(c for c in term if term.count(c) > 1)
        first, second = term.index(letter), term.index(letter, term.index(letter) + 1)
        rest = [i for i in range(len(term)) if i not in (first, second)]
        shape = ctx.shape(typed(data))
        extent = shape[first]
        if shape[second] != extent:
            ctx.fail(f"index {letter!r} stands for the extents {extent} and {shape[second]}")
        kept = [shape[i] for i in rest]
        flat = relay_op.reshape(relay_op.transpose(data, axes=(*rest, first, second)), (*kept, extent * extent))
        data = relay_op.strided_slice(
            flat, [0] * (len(kept) + 1), [*kept, extent * extent], [1] * len(kept) + [extent + 1]
        )
        term = "".join(term[i] for i in rest) + letter
    return data, term


def _einsum_one(data: RelayExpr, term: str, out: str) -> RelayExpr:
    dropped = [i for i, c in enumerate(term) if c not in out]
    if dropped:
        data = relay_op.sum(data, axis=dropped)
    kept = [c for c in term if c in out]
    return relay_op.transpose(data, axes=[kept.index(c) for c in out])


def _without_ones(
    ctx: NodeContext, data: RelayExpr, term: str, other: RelayExpr, other_term: str
) -> tuple[RelayExpr, str]:
    """Return ``data`` without axes of one element that broadcast to larger ones of ``other``."""
    extents = dict(zip(other_term, ctx.dims(typed(other)), strict=True))
    ones = []
    for i, (letter, extent) in enumerate(zip(term, ctx.dims(typed(data)), strict=True)):
        wanted = extents.get(letter, extent)
        known = is_number(extent) and is_number(wanted)
        if known and 1 not in (extent, wanted) and extent != wanted:
            ctx.fail(f"index {letter!r} stands for the extents {extent} and {wanted}")
        if is_number(extent) and extent == 1 and not (known and wanted == 1):
            ones.append(i)
    if not ones:
        return data, term
    return relay_op.squeeze(data, axis=ones), "".join(c for i, c in enumerate(term) if i not in ones)


def _einsum_two(ctx: NodeContext, a: RelayExpr, a_term: str, b: RelayExpr, b_term: str, out: str) -> RelayExpr:
    """Return the result of two operands as a batched matrix product: batch, free left, free right, and summed axes."""
    (a, a_term), (b, b_term) = _without_ones(ctx, a, a_term, b, b_term), _without_ones(ctx, b, b_term, a, a_term)
    for index, (term, other) in enumerate(((a_term, b_term), (b_term, a_term))):
        alone = [i for i, c in enumerate(term) if c not in other and c not in out]
        if alone:
            summed = relay_op.sum(a if index == 0 else b, axis=alone)
            kept = "".join(c for c in term if c in other or c in out)
            if index == 0:
                a, a_term = summed, kept
            else:
                b, b_term = summed, kept
    batch = [c for c in a_term if c in b_term and c in out]
    summed_letters = [c for c in a_term if c in b_term and c not in out]
    free_a = [c for c in a_term if c not in b_term]
    free_b = [c for c in b_term if c not in a_term]
    size = dict(zip(b_term, ctx.dims(typed(b)), strict=True))
    size |= {c: d for c, d in zip(a_term, ctx.dims(typed(a)), strict=True) if not is_number(size.get(c))}
    if all(map(is_number, size.values())) and 0 in size.values():  # no elements, or each is a sum of none
        return relay_op.zeros([size[c] for c in out], ctx.dtype(a))

    def arrange(x: RelayExpr, term: str, free: Sequence[str]) -> RelayExpr:
        order = [term.index(c) for c in (*batch, *free, *summed_letters)]
        return joined(relay_op.transpose(x, axes=order), [len(batch), len(free), len(summed_letters)])

    product = relay_op.nn.batch_matmul(arrange(a, a_term, free_a), arrange(b, b_term, free_b))
    letters = [*batch, *free_a, *free_b]
    shape = None
    if not all(is_number(size[c]) for c in letters):
        places = {c: (b, i) for i, c in enumerate(b_term)} | {c: (a, i) for i, c in enumerate(a_term)}
        shape = relay_op.stack([runtime_extent(*places[c]) for c in letters], axis=0)
    shaped = reshape_to(ctx, typed(product), [size[c] for c in letters], shape)
    return relay_op.transpose(shaped, axes=[letters.index(c) for c in out]) if letters else shaped


# Elimination is written out, column by column.
_MAX_ELIMINATED = 64


def _square(ctx: NodeContext, what: str) -> tuple[list[int], int]:
    """Return the extents before the last two, which are equal and few."""
    *batch, rows, columns = ctx.shape(ctx.input(0))
    if rows != columns:
        ctx.fail(f"a matrix of {rows} rows and {columns} columns; {what} are of square ones")
    if rows > _MAX_ELIMINATED:
        ctx.unsupported(f"{what} of {rows} rows; {_MAX_ELIMINATED} are supported")
    return batch, rows


@converter("Det", since=11, in_float32=True)
def convert_det(ctx: NodeContext) -> RelayExpr:
    """Determinants of square matrices, by elimination with the largest pivots."""
    data, dtype = ctx.input(0), ctx.dtype(ctx.input(0))
    batch, rows = _square(ctx, "determinants")
    count = int(np.prod(batch, dtype=np.int64))
    matrix = relay_op.reshape(data, (count, rows, rows)) if count and rows else data
    if not count or not rows:
        return relay_op.ones(tuple(batch), dtype)
    found: RelayExpr = relay_op.ones((count,), dtype)
    one, zero = const(1.0, dtype), const(0.0, dtype)
    for size in range(rows, 0, -1):
        column = relay_op.reshape(relay_op.strided_slice(matrix, [0, 0, 0], [count, size, 1]), (count, size))
        best = relay_op.argmax(relay_op.abs(column), axis=1)
        pivot_row = relay_op.reshape(
            relay_op.take(matrix, relay_op.expand_dims(best, 1), axis=1, batch_dims=1), (count, size)
        )
        pivot = relay_op.reshape(relay_op.strided_slice(pivot_row, [0, 0], [count, 1]), (count,))
        swapped = relay_op.not_equal(best, const(0, "int32"))
        found = typed(relay_op.multiply(found, relay_op.where(swapped, relay_op.negative(pivot), pivot)))
        if size == 1:
            break
        first = relay_op.strided_slice(matrix, [0, 0, 0], [count, 1, size])
        chosen = relay_op.equal(const(np.arange(size, dtype="int32")), relay_op.expand_dims(best, 1))
        rest = relay_op.where(relay_op.expand_dims(chosen, 2), first, matrix)
        divisor = relay_op.where(relay_op.equal(pivot, zero), one, pivot)
        ends = [count, size, size]
        factors = relay_op.divide(
            relay_op.strided_slice(rest, [0, 1, 0], [count, size, 1]), relay_op.reshape(divisor, (count, 1, 1))
        )
        tail = relay_op.expand_dims(relay_op.strided_slice(pivot_row, [0, 1], [count, size]), 1)
        matrix = typed(
            relay_op.subtract(relay_op.strided_slice(rest, [0, 1, 1], ends), relay_op.multiply(factors, tail))
        )
    return relay_op.reshape(found, tuple(batch))


@converter("Inverse", domain="com.microsoft", in_float32=True)
def convert_inverse(ctx: NodeContext) -> RelayExpr:
    """Inverses of square matrices, by elimination with the largest pivots beside the identity matrix."""
    data, dtype = ctx.input(0), ctx.dtype(ctx.input(0))
    batch, rows = _square(ctx, "inverses")
    count = int(np.prod(batch, dtype=np.int64))
    if not count or not rows:
        return data
    ones = const(np.broadcast_to(np.eye(rows, dtype=dtype), (count, rows, rows)).copy())
    matrix: RelayExpr = relay_op.concatenate([relay_op.reshape(data, (count, rows, rows)), ones], axis=2)
    places = const(np.arange(rows, dtype="int32"))
    for step in range(rows):
        column = relay_op.strided_slice(matrix, [0, step, step], [count, rows, step + 1])
        largest = relay_op.argmax(relay_op.abs(relay_op.reshape(column, (count, rows - step))), axis=1)
        best = relay_op.expand_dims(relay_op.add(largest, const(step, "int32")), 1)
        picked = relay_op.take(matrix, best, axis=1, batch_dims=1)
        row = typed(relay_op.divide(picked, relay_op.strided_slice(picked, [0, 0, step], [count, 1, step + 1])))
        swapped = relay_op.strided_slice(matrix, [0, step, 0], [count, step + 1, 2 * rows])
        chosen = relay_op.expand_dims(relay_op.equal(places, best), 2)
        rest = typed(relay_op.where(chosen, swapped, matrix))
        factors = relay_op.strided_slice(rest, [0, 0, step], [count, rows, step + 1])
        cleared = relay_op.subtract(rest, relay_op.multiply(factors, row))
        here = relay_op.reshape(relay_op.equal(places, const(step, "int32")), (1, rows, 1))
        matrix = typed(relay_op.where(here, row, cleared))
    found = relay_op.strided_slice(matrix, [0, 0, rows], [count, rows, 2 * rows])
    return relay_op.reshape(found, (*batch, rows, rows))
