"""Products: MatMul, Gemm, Einsum, convolutions."""

from __future__ import annotations

import math
from typing import Any

from tests.random_operators.case import EXACT, Graph, Tolerance, generator, schema
from tests.random_operators.draw import FLOATS, MAX_ELEMENTS, Discard

_SIDES = (1, 2, 3, 5, 0, 7, 8, 13, 16, 17, 31, 33)
LINEAR = Tolerance("linear", 32)


def _kinds(g: Graph, dtype: str) -> str:
    """Mostly ordinary numbers; at times infinities and numbers that are none."""
    return str(g.draw.of("mild", "mild", "mild", "open" if dtype in FLOATS else "any"))


@generator("MatMul")
def matmul(g: Graph) -> Tolerance:
    dtype = g.dtype()
    rows, inner, columns = (g.draw.of(*_SIDES) for _ in range(3))
    batch = g.draw.shape(0, 2, extents=(1, 2, 3, 0))
    left: tuple[int, ...] = (*g.draw.broadcast(batch), rows, inner)
    right: tuple[int, ...] = (*g.draw.broadcast(batch), inner, columns)
    left = (inner,) if g.draw.chance(6) else left
    right = (inner,) if g.draw.chance(6) else right
    kinds = _kinds(g, dtype)
    g.emit([g.data(dtype, left, kinds), g.data(dtype, right, kinds)])
    return LINEAR if dtype in FLOATS else EXACT


@generator("Gemm")
def gemm(g: Graph) -> Tolerance:
    dtype = g.dtype()
    rows, inner, columns = (g.draw.of(*_SIDES) for _ in range(3))
    attributes: dict[str, Any] = {name: g.draw.of(0, 1) for name in g.draw.some(("transA", "transB"))}
    numbers = (1.0, 0.5, 0.0, -2.0) if dtype in FLOATS else (1.0, 2.0, 0.0)
    attributes |= {name: g.draw.of(*numbers) for name in g.draw.some(("alpha", "beta"))}
    # Integers with factors are computed in floating point by the oracles.
    kinds = _kinds(g, dtype) if dtype in FLOATS else "mild"
    left = (inner, rows) if attributes.get("transA") else (rows, inner)
    right = (columns, inner) if attributes.get("transB") else (inner, columns)
    names = [g.data(dtype, left, kinds), g.data(dtype, right, kinds)]
    if g.opset < 11 or g.draw.of(False, True):
        names.append(
            g.data(dtype, g.draw.of((rows, columns), (columns,), (rows, 1), (1, columns), (1,), (), (1, 1)), kinds)
        )
    g.emit(names, **attributes)
    return LINEAR if dtype in FLOATS else EXACT


_EQUATIONS = (
    "ij->ji", "ij,jk->ik", "bij,bjk->bik", "ij->", "ii->i", "ii", "i,i->", "i,j->ij", "ij,ij->ij", "...ij->...ji",
    "...ij,...jk->...ik", "bhid,bhjd->bhij", "ij,jk", "ij,k->ikj", "...i->...", "i...->...i", "abc,cd->abd", "ij,ji->",
    "iij->ij", "b...,b...->...", "ij , jk -> ik", "i->i", "->", ",->", "ij,kl->ijkl", "aab,bc->ac", "i...j->j...",
    "ij,jk,kl->il", "a,ab,bc->abc", "i,i,i->", "...b,bc,...b->...c",
)  # fmt: skip


@generator("Einsum")
def einsum(g: Graph) -> Tolerance:
    dtype, equation = g.dtype(), g.draw.of(*_EQUATIONS)
    extent = {c: g.draw.of(2, 1, 3, 5, 0, 7) for c in "abcdhijkl"}
    ellipsis = g.draw.shape(0, 2, extents=(1, 2, 3, 0))
    names = []
    for term in equation.replace(" ", "").partition("->")[0].split(","):
        head, dots, tail = term.partition("...")
        middle = g.draw.broadcast(ellipsis) if dots else ()
        shape = (*(extent[c] for c in head), *middle, *(extent[c] for c in tail))
        if math.prod(shape) > MAX_ELEMENTS:
            raise Discard
        names.append(g.data(dtype, shape, "mild"))
    g.emit(names, equation=equation)
    return LINEAR if dtype in FLOATS else EXACT


def window(g: Graph, rank: int, largest: int = 3, operator: str | None = None) -> dict[str, Any]:
    """Attributes of a window: kernel_shape, and some of strides, dilations and pads or auto_pad."""
    found: dict[str, Any] = {"kernel_shape": [g.draw.between(1, largest) for _ in range(rank)]}
    if g.draw.of(False, True):
        found["strides"] = [g.draw.of(1, 2, 3, 4) for _ in range(rank)]
    if "dilations" in schema(operator or g.operator, g.opset).attributes and g.draw.chance(3):
        found["dilations"] = [g.draw.of(1, 2, 3) for _ in range(rank)]
    match g.draw.of("", "pads", "pads", "auto"):
        case "pads":
            found["pads"] = [g.draw.of(0, 1, 2) for _ in range(2 * rank)]
        case "auto":
            found["auto_pad"] = g.draw.of("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    return found


def fitting(g: Graph, rank: int, attributes: dict[str, Any]) -> list[int]:
    """Extents of the data into which at least one window fits."""
    found = []
    for i in range(rank):
        dilation = attributes.get("dilations", [1] * rank)[i]
        reach = (attributes["kernel_shape"][i] - 1) * dilation + 1
        pads = attributes.get("pads", [0] * (2 * rank))
        least = 1 if attributes.get("auto_pad", "").startswith("SAME") else max(reach - pads[i] - pads[i + rank], 1)
        found.append(least + g.draw.of(0, 1, 2, 3, 5, 9 if rank < 3 else 1))
    return found


@generator("Conv")
def conv(g: Graph) -> Tolerance:
    dtype, rank = g.dtype(), g.draw.of(2, 1, 3)
    attributes = window(g, rank)
    group = g.draw.of(1, 1, 2, 3)
    inputs, outputs = (group * g.draw.of(1, 2, 3, 5, 8) for _ in range(2))
    shape = (g.draw.of(1, 2, 0, 3), inputs, *fitting(g, rank, attributes))
    weight = (outputs, inputs // group, *attributes["kernel_shape"])
    if group != 1 or g.draw.of(False, True):
        attributes["group"] = group
    if g.draw.of(False, True):
        del attributes["kernel_shape"]
    names = [g.data(dtype, shape, "mild"), g.data(dtype, weight, "mild")]
    if g.draw.of(False, True):
        names.append(g.data(dtype, (outputs,), "mild"))
    g.emit(names, **attributes)
    return Tolerance("linear", 128)


@generator("ConvTranspose")
def conv_transpose(g: Graph) -> Tolerance:
    dtype, rank = g.dtype(), g.draw.of(2, 1, 3)
    attributes = window(g, rank)
    group = g.draw.of(1, 1, 2, 3)
    inputs, outputs = (group * g.draw.of(1, 2, 3, 5, 8) for _ in range(2))
    extents = [g.draw.of(1, 2, 3, 5, 7 if rank < 3 else 4) for _ in range(rank)]
    strides, dilations = (attributes.get(k, [1] * rank) for k in ("strides", "dilations"))
    if g.draw.chance(3):
        attributes["output_padding"] = [g.draw.below(max(s, d)) for s, d in zip(strides, dilations, strict=True)]
    extra, pads = attributes.get("output_padding", [0] * rank), attributes.get("pads", [0] * (2 * rank))
    for i in range(rank):
        full = strides[i] * (extents[i] - 1) + extra[i] + (attributes["kernel_shape"][i] - 1) * dilations[i] + 1
        if full - pads[i] - pads[i + rank] < 1:
            raise Discard
        if attributes.get("auto_pad", "").startswith("SAME") and full < strides[i] * extents[i]:
            raise Discard  # the specification's formula asks for negative padding
    weight = (inputs, outputs // group, *attributes["kernel_shape"])
    if group != 1 or g.draw.of(False, True):
        attributes["group"] = group
    if g.draw.of(False, True):
        del attributes["kernel_shape"]
    names = [g.data(dtype, (g.draw.of(1, 2, 0, 3), inputs, *extents), "mild"), g.data(dtype, weight, "mild")]
    if g.draw.of(False, True):
        names.append(g.data(dtype, (outputs,), "mild"))
    g.emit(names, **attributes)
    return Tolerance("linear", 128)
