"""Tensor contractions: einsum, tensordot, matmul."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import nn, tag
from tilewright.topi.transform import normalize_axis
from tilewright.topi.utils import InvalidShapeError, as_list, get_const_tuple

_DOTS = "..."


def parse_einsum(subscripts: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """Parse an equation into the labels of each operand's dimensions and of the result's, ``...`` expanded.

    Raises InvalidShapeError where the subscripts are no equation of numpy.einsum for operands of these ranks.
    """
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise InvalidShapeError(f"einsum {subscripts!r} names {len(parts)} operands, found {len(ranks)}")
    hidden = max((r - len(p.replace(_DOTS, "")) for p, r in zip(parts, ranks, strict=True) if _DOTS in p), default=0)
    terms = [_labels(subscripts, p, r - len(p.replace(_DOTS, ""))) for p, r in zip(parts, ranks, strict=True)]
    for term, rank in zip(terms, ranks, strict=True):
        if len(term) != rank:
            raise InvalidShapeError(f"einsum {subscripts!r}: an operand of rank {rank} has {len(term)} subscripts")
    every = [label for term in terms for label in term]
    if arrow:
        out = _labels(subscripts, right, hidden if _DOTS in right else 0)
        if len(set(out)) != len(out) or not set(out) <= set(every):
            raise InvalidShapeError(f"einsum {subscripts!r}: the result's subscripts are the operands', once each")
        return terms, out
    dots = sorted({label for label in every if label.startswith(_DOTS)}, reverse=True)
    return terms, dots + sorted(label for label in set(every) if every.count(label) == 1 and label not in dots)


def _labels(subscripts: str, part: str, hidden: int) -> list[str]:
    """Return one label a dimension; those of ``...`` are numbered from the last, since they broadcast."""
    before, dots, behind = part.partition(_DOTS)
    if not (before + behind).isalpha() and before + behind:
        raise InvalidShapeError(f"einsum {subscripts!r}: subscripts are letters and one '...' an operand")
    return [*before, *([f"{_DOTS}{hidden - 1 - k:03}" for k in range(hidden)] if dots else []), *behind]


def einsum_extents(subscripts: str, terms: Sequence[Sequence[str]], shapes: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the extent of each label: dimensions of 1 broadcast, and of unknown extents the first counts."""
    extents: dict[str, Any] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, dim in zip(term, shape, strict=True):
            have = extents.get(label, 1)
            if isinstance(have, int) and isinstance(dim, int) and have != dim and 1 not in (have, dim):
                raise InvalidShapeError(f"einsum {subscripts!r}: {label!r} stands for extents {have} and {dim}")
            if label not in extents or (isinstance(have, int) and have == 1):
                extents[label] = dim
    return extents


def einsum(subscripts: str, *operand: Any) -> te.Tensor:
    """Multiply the operands and sum over the labels that the result leaves out, as ``numpy.einsum``.

    Operands may be passed as one list. Raises InvalidShapeError where shapes and subscripts do not fit.
    """
    tensors: list[te.Tensor] = [t for given in operand for t in as_list(given)]
    shapes = [get_const_tuple(t.shape) for t in tensors]
    terms, out = parse_einsum(subscripts, [t.ndim for t in tensors])
    extents = einsum_extents(subscripts, terms, shapes)
    rest = [label for label in extents if label not in out]
    summed = {label: te.reduce_axis((0, extents[label]), name=f"k{k}") for k, label in enumerate(rest)}

    def body(*i: PrimExpr) -> Any:
        at = dict(zip(out, i, strict=True)) | {label: axis.var for label, axis in summed.items()}
        product: Any = None
        for tensor, term, shape in zip(tensors, terms, shapes, strict=True):
            once = [isinstance(d, int) and d == 1 for d in shape]
            factor = tensor(*(0 if one else at[label] for one, label in zip(once, term, strict=True)))
            product = factor if product is None else product * factor
        return te.sum(product, axis=list(summed.values())) if summed else product

    kind = tag.COMM_REDUCE if summed else tag.INJECTIVE
    return te.compute([extents[label] for label in out], body, name="T_einsum", tag=kind)


def tensordot(a: te.Tensor, b: te.Tensor, axes: Any = 2) -> te.Tensor:
    """Sum products over the last ``axes`` dimensions of ``a`` and the first of ``b``, or over pairs of dimensions.

    ``axes`` is a number, or two lists of dimensions, of ``a`` and of ``b``.
    """
    if isinstance(axes, int):
        pairs = list(zip(range(a.ndim - axes, a.ndim), range(axes), strict=True))
    else:
        first, second = (as_list(group) for group in axes)
        pairs = [(normalize_axis(x, a.ndim), normalize_axis(y, b.ndim)) for x, y in zip(first, second, strict=True)]
    for x, y in pairs:
        if get_const_tuple(a.shape)[x] != get_const_tuple(b.shape)[y]:
            raise InvalidShapeError(f"tensordot: dimension {x} of extent {a.shape[x]} meets {y} of {b.shape[y]}")
    summed = [te.reduce_axis((0, a.shape[x]), name=f"k{k}") for k, (x, _) in enumerate(pairs)]
    rest_a = [k for k in range(a.ndim) if k not in [x for x, _ in pairs]]
    rest_b = [k for k in range(b.ndim) if k not in [y for _, y in pairs]]

    def body(*i: PrimExpr) -> Any:
        at_a: dict[int, Any] = dict(zip(rest_a, i, strict=False))
        at_b: dict[int, Any] = dict(zip(rest_b, i[len(rest_a) :], strict=True))
        for (x, y), axis in zip(pairs, summed, strict=True):
            at_a[x] = at_b[y] = axis.var
        product = a(*(at_a[k] for k in range(a.ndim))) * b(*(at_b[k] for k in range(b.ndim)))
        return te.sum(product, axis=summed) if summed else product

    shape = [a.shape[k] for k in rest_a] + [b.shape[k] for k in rest_b]
    return te.compute(shape, body, name="T_tensordot", tag=tag.COMM_REDUCE if summed else tag.INJECTIVE)


def matmul(a: te.Tensor, b: te.Tensor, transp_a: bool = False, transp_b: bool = False) -> te.Tensor:
    """Multiply two matrices, each transposed if its flag is set."""
    return nn.matmul(a, b, None, None, transp_a, transp_b)


__all__ = ["einsum", "matmul", "tensordot"]
