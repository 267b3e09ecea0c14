"""Type relations that many operators share, and arithmetic on dimensions.

A dimension is an ``IntImm``, ``Any`` (unknown) or a symbolic expression. Arithmetic with an unknown one is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any as AnyType
from typing import TypeVar

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import prim_ops
from tilewright.ir.errors import StillUnknown, TypeInferenceError
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Any, IntImm, Mul, PrimExpr, Select, Var
from tilewright.ir.type import IncompleteType, TensorType, TupleType, Type
from tilewright.relay.op.definition import TypeSolver
from tilewright.relay.type_infer.describe import describe, describe_dim, describe_shape
from tilewright.relay.type_infer.dimensions import note_at_least, note_equal

T = TypeVar("T")
Dim = PrimExpr | int


def tensor_or_none(type_: Type, what: str = "the argument") -> TensorType | None:
    """Return ``type_`` as a tensor type, None for a hole; raise TypeInferenceError for any other type."""
    if isinstance(type_, TensorType):
        return type_
    if isinstance(type_, IncompleteType):
        return None
    raise TypeInferenceError(f"{what} should be a tensor, found {describe(type_)}")


def tensor(type_: Type, what: str = "the argument") -> TensorType:
    """Return ``type_`` as a tensor type; the relation waits (StillUnknown) while it is a hole."""
    return tensors([type_], [what])[0]


def tensors(types: Sequence[Type], names: Sequence[str] = ()) -> list[TensorType]:
    """Return all ``types`` as tensor types; the relation waits (StillUnknown) while one is unknown."""
    names = [*names, *(f"argument {index}" for index in range(len(names), len(types)))]
    found = [tensor_or_none(type_, name) for type_, name in zip(types, names, strict=False)]
    known_types = [type_ for type_ in found if type_ is not None]
    if len(known_types) < len(found):
        raise StillUnknown
    return known_types


def tuple_of_tensors(type_: Type) -> list[TensorType]:
    """Return the fields of a tuple of tensors; the relation waits (StillUnknown) while one is unknown."""
    if isinstance(type_, IncompleteType):
        raise StillUnknown
    if not isinstance(type_, TupleType):
        raise TypeInferenceError(f"the argument should be a tuple of tensors, found {describe(type_)}")
    return tensors(type_.fields, [f"field {i}" for i in range(len(type_.fields))])


def known(dim: Dim) -> int | None:
    """Return the dimension as an int, or None where it is unknown at compile time."""
    if isinstance(dim, int):
        return dim
    return dim.value if isinstance(dim, IntImm) else None


def dim_map(function: Callable[..., AnyType], *dims: Dim) -> PrimExpr:
    """Apply ``function`` to dimensions; the result is unknown if one of them is, else in canonical form."""
    if any(isinstance(d, Any) for d in dims):
        return Any()
    return simple_dim(prim_ops.as_expr(function(*[d.value if isinstance(d, IntImm) else d for d in dims])))


def dim_add(*dims: Dim) -> PrimExpr:
    """Return the sum of dimensions."""
    return dim_map(lambda *ds: sum(ds[1:], ds[0]), *dims)


def simple_dim(dim: PrimExpr) -> PrimExpr:
    """Return a dimension in canonical form, so that equal sums are one object."""
    return dim if isinstance(dim, (Any, IntImm, Var)) else Analyzer().simplify(dim)


def _factors(dim: Dim) -> tuple[int, list[PrimExpr]]:
    """Return the constant and the other factors of a product, the latter in a canonical order."""
    number, others, stack = 1, [], [prim_ops.as_expr(dim)]
    while stack:
        item = stack.pop()
        if isinstance(item, Mul):
            stack += [item.a, item.b]
        elif isinstance(item, IntImm):
            number *= item.value
        else:
            others.append(item)
    return number, sorted(others, key=lambda item: (str(item), id(item)))


def _product(number: int, others: Sequence[PrimExpr]) -> PrimExpr:
    result = math.prod(others[1:], start=others[0]) if others else prim_ops.as_expr(number)
    return prim_ops.as_expr(result * number if others and number != 1 else result)


def dim_mul(*dims: Dim) -> PrimExpr:
    """Return the product of dimensions, 1 of none. Equal products are one object."""
    if any(isinstance(d, Any) for d in dims):
        return Any()
    parts = [_factors(d) for d in dims]
    others = sorted((e for _, found in parts for e in found), key=lambda item: (str(item), id(item)))
    number = math.prod(n for n, _ in parts)
    return _product(number, others) if number else prim_ops.as_expr(0)


def dim_floordiv(a: Dim, b: Dim) -> PrimExpr:
    """Return ``a // b``; common factors cancel."""
    if isinstance(a, Any) or isinstance(b, Any):
        return Any()
    (over, above), (under, below) = _factors(a), _factors(b)
    for factor in list(below):
        if factor in above:
            above.remove(factor)
            below.remove(factor)
    common = math.gcd(over, under)
    if common > 1:
        over, under = over // common, under // common
    whole = _product(over, above)
    if under == 1 and not below:
        return whole
    return dim_map(lambda x, y: x // y, whole, _product(under, below))


def require(condition: bool, message: str) -> None:
    """Raise TypeInferenceError with ``message`` unless ``condition`` holds."""
    if not condition:
        raise TypeInferenceError(message)


def require_at_least(dim: PrimExpr, least: PrimExpr, message: str) -> None:
    """Raise TypeInferenceError unless a dimension is ``least`` or more; an unknown one is checked at run time."""
    a, b = known(dim), known(least)
    require(a is None or b is None or a >= b, message)
    note_at_least(dim, least)


def require_rank(type_: TensorType, rank: int, what: str) -> None:
    """Raise TypeInferenceError unless the tensor has ``rank`` dimensions."""
    if len(type_.shape) != rank:
        raise TypeInferenceError(
            f"{what} should have {rank} dimensions, found {len(type_.shape)}: {describe_shape(type_.shape)}"
        )


def require_same_dtype(types: Iterable[TensorType], what: str = "the arguments") -> None:
    """Raise TypeInferenceError unless all tensors have one dtype."""
    dtypes = list(dict.fromkeys(t.dtype for t in types))
    if len(dtypes) > 1:
        raise TypeInferenceError(f"{what} should have the same dtype, found {' and '.join(dtypes)}")


def normalize_axis(axis: AnyType, rank: int, what: str = "axis") -> int:
    """Return ``axis`` counted from the front; raise TypeInferenceError where it is out of range."""
    value = int(axis)
    if not -rank <= value < rank:
        raise TypeInferenceError(f"{what} {value} is out of range for a tensor of {rank} dimensions")
    return value % rank


def normalize_axes(axes: AnyType, rank: int, exclude: bool = False) -> tuple[int, ...]:
    """Return sorted axes counted from the front; None means all; ``exclude`` inverts the choice."""
    if axes is None:
        chosen = list(range(rank))
    else:
        sequence = axes if isinstance(axes, (tuple, list)) else (axes,)
        chosen = [normalize_axis(a, rank) for a in sequence]
        if len(set(chosen)) != len(chosen):
            raise TypeInferenceError(f"axis {tuple(sequence)} names a dimension twice")
        if exclude:
            chosen = [a for a in range(rank) if a not in chosen]
    return tuple(sorted(chosen))


def broadcast_dims(a: Dim, b: Dim) -> PrimExpr | None:
    """Return the dimension of two broadcast ones, None where they do not match."""
    x, y = known(a), known(b)
    if x == 1:
        return prim_ops.as_expr(b)
    if y == 1 or a is b:
        return prim_ops.as_expr(a)
    if x is not None and y is not None:
        return prim_ops.as_expr(a) if x == y else None
    if isinstance(a, Any) and isinstance(b, Any):
        return Any()
    if isinstance(a, Any):
        return prim_ops.as_expr(b)
    if isinstance(b, Any):
        return prim_ops.as_expr(a)
    noted = note_equal(a, b, or_one=True)
    if x is not None or y is not None:
        return prim_ops.as_expr(a if x is not None else b)
    if not noted:
        return Any()
    return Select(prim_ops.equal(prim_ops.as_expr(a), 1), prim_ops.as_expr(b), prim_ops.as_expr(a))


def broadcast_shapes(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[PrimExpr, ...]:
    """Return the shape of two broadcast tensors, by numpy's rule.

    Raises:
        TypeInferenceError: two dimensions differ and neither is 1.
    """
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    head = len(long) - len(short)
    result: list[PrimExpr] = [prim_ops.as_expr(d) for d in long[:head]]
    for x, y in zip(long[head:], short, strict=True):
        dim = broadcast_dims(x, y)
        if dim is None:
            shapes = " and ".join(f"({', '.join(describe_dim(prim_ops.as_expr(d)) for d in s)})" for s in (a, b))
            raise TypeInferenceError(f"the shapes {shapes} do not broadcast")
        result.append(dim)
    return tuple(result)


def identity(types: Sequence[Type], attrs: object, solver: TypeSolver) -> Type | None:
    """Return the type of the first argument."""
    return tensor(types[0])


def same(types: Sequence[Type], attrs: object, solver: TypeSolver) -> Type | None:
    """Return the type of the first argument, whether a tensor or not, even where it has holes."""
    return types[0]


def broadcast(types: Sequence[Type], attrs: object, solver: TypeSolver) -> Type | None:
    """Return the type of two broadcast tensors of one dtype."""
    found = tensors(types, ("lhs", "rhs"))
    lhs, rhs = found
    if lhs.shape == rhs.shape and lhs.dtype == rhs.dtype:
        return lhs
    require_same_dtype(found, "lhs and rhs")
    return TensorType(broadcast_shapes(lhs.shape, rhs.shape), lhs.dtype)


def broadcast_compare(types: Sequence[Type], attrs: object, solver: TypeSolver) -> Type | None:
    """Return the bool type of two broadcast tensors of one dtype."""
    result = broadcast(types, attrs, solver)
    return TensorType(result.shape, "bool") if isinstance(result, TensorType) else None


Op.type_relations.update({"Identity": same, "Broadcast": broadcast, "BroadcastComp": broadcast_compare})
