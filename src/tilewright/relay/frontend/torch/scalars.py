"""Python numbers of a program: arithmetic of sizes, and of values read from tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.torch.complex_numbers import Complex
from tilewright.relay.frontend.torch.symbols import Size

if TYPE_CHECKING:
    from tilewright.relay.frontend.torch.context import TorchContext
    from tilewright.relay.frontend.torch.graph import GraphImporter


def of_input(importer: GraphImporter, name: str, value: Any) -> Any:
    """Return an input: a tensor; or the size, or scalar, in a variable of no dimension."""
    made = importer.input(name, value)
    if isinstance(value, torch.Tensor):
        return made
    return Size(importer.symbols.dim(value) if isinstance(value, torch.SymInt) else None, made)


def as_tensor(ctx: TorchContext, value: Any) -> Any:
    """Return what a program returns: sizes as tensors of no dimension; tensors and plain values as they are."""
    if isinstance(value, Complex):
        raise UnsupportedError("the program returns complex numbers; let it return torch.view_as_real of them")
    return ctx.scalar(value) if isinstance(value, Size) else value


def _float(x: RelayExpr) -> RelayExpr:
    return typed(relay_op.cast(x, "float64"))


def _int(x: RelayExpr) -> RelayExpr:
    return typed(relay_op.cast(x, "int64"))


def _true_division(a: RelayExpr, b: RelayExpr) -> RelayExpr:
    return relay_op.divide(_float(a), _float(b))


_RULES: dict[Any, Callable[..., RelayExpr]] = {
    operator.add: relay_op.add, operator.sub: relay_op.subtract, operator.mul: relay_op.multiply,
    operator.floordiv: relay_op.floor_divide, operator.mod: relay_op.floor_mod, operator.truediv: _true_division,
    operator.neg: relay_op.negative, operator.pow: relay_op.power, operator.pos: lambda x: x,
    operator.abs: relay_op.abs,
    operator.lt: relay_op.less, operator.le: relay_op.less_equal, operator.gt: relay_op.greater,
    operator.ge: relay_op.greater_equal, operator.eq: relay_op.equal, operator.ne: relay_op.not_equal,
    operator.and_: relay_op.logical_and, operator.or_: relay_op.logical_or, operator.not_: relay_op.logical_not,
    torch.sym_not: relay_op.logical_not, torch.sym_max: relay_op.maximum, torch.sym_min: relay_op.minimum,
    torch.sym_float: _float, torch.sym_int: lambda x: _int(relay_op.trunc(_float(x))),
    torch.sym_ite: relay_op.where,
    math.ceil: lambda x: _int(relay_op.ceil(_float(x))), math.floor: lambda x: _int(relay_op.floor(_float(x))),
    math.trunc: lambda x: _int(relay_op.trunc(_float(x))), round: lambda x: _int(relay_op.nearbyint(_float(x))),
    math.sqrt: lambda x: relay_op.sqrt(_float(x)), math.log2: lambda x: relay_op.log2(_float(x)),
    torch._sym_sqrt: lambda x: relay_op.sqrt(_float(x)),
    max: relay_op.maximum, min: relay_op.minimum, abs: relay_op.abs, int: lambda x: _int(relay_op.trunc(_float(x))),
    float: _float,
}  # fmt: skip


def handles(target: Any) -> bool:
    """Return whether a function of Python numbers is known."""
    return target is operator.getitem or target in _RULES or getattr(target, "__name__", "") in _NAMELESS


_NAMELESS = ("sym_constrain_range_for_size", "sym_constrain_range", "_check", "_check_is_size")


def convert(ctx: TorchContext, args: list[Any]) -> Any:
    """Return the result of a function of Python numbers."""
    target: Any = ctx.node.target
    stated = ctx.node.meta.get("val")
    if not any(isinstance(a, (Size, RelayExpr)) for a in args) and target in _RULES:
        return target(*args)
    dim = ctx.importer.symbols.dim(stated) if isinstance(stated, torch.SymInt) else None
    if dim is not None:
        return dim if isinstance(dim, int) else Size(dim)
    if target not in _RULES:
        ctx.unsupported("a function of Python numbers")
    values = [_operand(ctx, a) for a in args]
    kinds = {ctx.dtype(v) for v in values}
    if len(kinds) > 1 and target is not torch.sym_ite:
        values = [_float(v) if "float64" in kinds else _int(v) for v in values]
    made = typed(_RULES[target](*values))
    return made if ctx.dtype(made) == "bool" else Size(None, made)


def _operand(ctx: TorchContext, value: Any) -> RelayExpr:
    if isinstance(value, Size):
        return ctx.scalar(value)
    if isinstance(value, RelayExpr):
        return value
    dtype = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float64"
    return const(np.array(value), dtype)
