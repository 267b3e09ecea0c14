"""The interface of converters to a node of an FX graph: operands, types, sizes, and operators that ONNX has too."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import PrimExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Constant, TupleWrapper, Var, const
from tilewright.relay.frontend.context import ConverterContext, typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.dynamic import (
    expand_to,
    filled,
    integer,
    reshape_to,
    runtime_dim,
    runtime_extent,
    vector,
)
from tilewright.relay.frontend.onnx.parts import OPSET, part_of
from tilewright.relay.frontend.torch.dtypes import TorchImportError, category, promote, real_name, scalar_dtype
from tilewright.relay.frontend.torch.symbols import Size
from tilewright.relay.transform.simplify.fold_constant import constant_value, fold_constant
from tilewright.runtime.ndarray import numpy_view

if TYPE_CHECKING:
    from tilewright.relay.frontend.torch.graph import GraphImporter

_PACKAGE = str(Path(__file__).parents[3])  # of this compiler, whose frames are no places of the user's
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ([^\n]*)\n\s*([^\n]*)')


def is_tensor(value: Any) -> TypeGuard[RelayExpr]:
    """Return whether an operand is a tensor."""
    return isinstance(value, RelayExpr)


def place_of(node: torch.fx.Node) -> str:
    """Return where the user's Python source made a node: "model.py:12: x = self.conv(x)"; empty if that is unknown."""
    frames = [f for f in _FRAME.findall(str(node.meta.get("stack_trace") or "")) if not f[0].startswith(_PACKAGE)]
    own = [f for f in frames if "/site-packages/torch/" not in f[0] and "/torch/nn/modules/" not in f[0]] or frames
    if not own:
        return ""
    path, line, _, code = own[-1]
    return f"{path}:{line}: {code.strip()}"


def described(node: torch.fx.Node) -> str:
    """Return an operator, and its place, for messages."""
    place = place_of(node)
    return f"{node.target} ({node.name})" + (f" at {place}" if place else "")


class TorchContext(ConverterContext):
    """One node of an FX graph while it is converted."""

    error = TorchImportError

    @property
    def place(self) -> str:
        """Return the operator and its place in the source, for messages."""
        return described(self.node)

    def __init__(self, importer: GraphImporter, node: torch.fx.Node) -> None:
        self.importer = importer
        self.node = node

    # ---- errors ----

    # ---- types ----

    def extent(self, value: RelayExpr, axis: int) -> int:
        """Return one dimension, which must be a number."""
        found = self.dims(value)[axis]
        if not is_number(found):
            self.unsupported(f"dimension {axis} of {self.tensor_type(value)} must be a number while compiling")
        return int(found)

    def axis(self, axis: int, rank: int) -> int:
        """Return ``axis`` counted from the front."""
        if not -max(rank, 1) <= axis < max(rank, 1):
            self.fail(f"the dimension {axis} is out of range for a tensor of {rank} dimensions")
        return axis % rank if rank else 0

    def axes(self, given: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
        """Return dimensions counted from the front; None and an empty list are all."""
        chosen = [given] if isinstance(given, int) else list(given or ())
        return tuple(self.axis(a, rank) for a in chosen) or tuple(range(rank))

    # ---- what torch says of the result ----

    def meta(self, index: int | None = None) -> Any:
        """Return torch's fake tensor of the result, or of one of several results."""
        value = self.node.meta["val"]
        return value if index is None else value[index]

    def reads(self, index: int) -> bool:
        """Return whether something reads one of several results."""
        return any(user.target is operator.getitem and user.args[1] == index for user in self.node.users)

    def result_dims(self, index: int | None = None) -> list[Any]:
        """Return the dimensions that torch states for the result."""
        return [self.importer.symbols.dim(d) for d in self.meta(index).shape]

    def result_dtype(self, index: int | None = None) -> str:
        """Return the data type that torch states for the result, or for the parts of its complex numbers."""
        return real_name(self.meta(index).dtype)

    # ---- numbers ----

    def constant_or_none(self, value: Any) -> np.ndarray[Any, Any] | None:
        """Return the value of an operand that is known while compiling."""
        if not is_tensor(value):
            return None if isinstance(value, Size) or value is None else np.asarray(value)
        if isinstance(value, Constant):
            return numpy_view(value.data)
        if not self.importer.is_constant_expr(value):
            return None
        found = constant_value(fold_constant(typed(value)))
        return found if isinstance(found, np.ndarray) else None

    def elements(self, sizes: Sequence[Any]) -> list[Any]:
        """Return sizes as numbers and expressions over dimensions; None for unknown ones."""
        return [self.importer.symbols.dim(s) for s in sizes]

    def scalar(self, size: Any) -> RelayExpr:
        """Return a size as a scalar of int64."""
        if is_tensor(size):
            return size
        if isinstance(size, Size):
            if size.value is not None:
                return size.value
            size = size.dim
        if isinstance(size, PrimExpr):
            found = runtime_dim(self.importer.inputs.values(), size)
            if found is None:
                self.unsupported(f"the size {size} cannot be computed from the shapes of the inputs")
            return typed(found)
        return integer(int(size))

    def vector(self, sizes: Sequence[Any]) -> RelayExpr:
        """Return sizes as a vector of int64."""
        if all(map(is_number, sizes)):
            return vector(sizes)
        made = typed(relay_op.stack([self.scalar(s) for s in sizes], axis=0))
        known = np.empty(len(sizes), object)
        known[:] = self.elements(sizes)
        self.importer.known_elements[made] = known
        return made

    def dim_size(self, value: RelayExpr, axis: int) -> Any:
        """Return a dimension as an integer of the program."""
        found = self.dims(value)[axis]
        return int(found) if is_number(found) else Size(found, typed(runtime_extent(value, axis)))

    def number(self, value: Any, dtype: str) -> RelayExpr:
        """Return a tensor, or a Python number or a size as a scalar, in a data type."""
        if is_tensor(value):
            return self.cast(value, dtype)
        if isinstance(value, Size):
            return self.cast(self.scalar(value), dtype)
        if isinstance(value, torch.Tensor):
            self.fail("a tensor that is no node of the graph")
        if dt.is_bool(dtype):
            return const(np.array(bool(value)), "bool")
        if not dt.is_float(dtype):
            bits = dt.bits(dtype)
            value = int(value) & ((1 << bits) - 1)
            value -= (1 << bits) if dt.is_signed(dtype) and value >> (bits - 1) else 0
        return const(value, dtype)

    def cast(self, value: RelayExpr, dtype: str) -> RelayExpr:
        """Return a tensor in a data type, as torch converts it."""
        own = self.dtype(value)
        if own == dtype:
            return value
        if dt.is_bool(dtype):
            return typed(relay_op.not_equal(value, const(0.0 if dt.is_float(own) else 0, own)))
        return typed(relay_op.cast(value, dtype))

    def common(self, *operands: Any) -> str:
        """Return the type that torch computes operands in: tensors, tensors of no dimension, and numbers.

        A weaker kind of operand decides only where it is of a higher category: bool, integer, floating point.
        """
        ranks: list[str | None] = [None, None, None]
        for value in operands:
            if value is None:
                continue
            if isinstance(value, Size):
                place, own = (2, "int64") if value.value is None else (2, self.dtype(value.value))
            elif is_tensor(value):
                place, own = (0 if self.rank(value) else 1), self.dtype(value)
            else:
                place, own = 2, scalar_dtype(value)
            before = ranks[place]
            ranks[place] = own if before is None else promote(before, own)
        found: str | None = None
        for own in ranks:  # type: ignore[assignment]
            if own is not None and (found is None or category(own) > category(found)):
                found = own
        return found or "float32"

    def promoted(self, *operands: Any, dtype: str | None = None) -> list[RelayExpr]:
        """Return operands in their common type, or in ``dtype``."""
        dtype = dtype or self.common(*operands)
        return [self.number(value, dtype) for value in operands]

    def as_float(self, value: RelayExpr) -> RelayExpr:
        """Return a tensor as it is, or integers as float32: torch's default."""
        return value if dt.is_float(self.dtype(value)) else self.cast(value, "float32")

    def in_float32(self, args: Sequence[Any]) -> tuple[list[Any], str | None]:
        """Return operands with float16 and bfloat16 widened, and their type; None where none is."""
        narrow = [self.dtype(a) for a in args if is_tensor(a) and dt.is_half(self.dtype(a))]
        if not narrow:
            return list(args), None
        wide = [self.cast(a, "float32") if is_tensor(a) and dt.is_half(self.dtype(a)) else a for a in args]
        return wide, narrow[0]

    def rounded(self, made: Any, dtype: str) -> Any:
        """Return results that were computed in float32 as ``dtype``."""
        if isinstance(made, TupleWrapper):
            made = [made[i] for i in range(len(made))]
        if isinstance(made, (list, tuple)):
            return [self.rounded(m, dtype) for m in made]
        return self.cast(made, dtype) if is_tensor(made) and self.dtype(made) == "float32" else made

    # ---- shapes ----

    def reshape(self, value: RelayExpr, sizes: Sequence[Any]) -> RelayExpr:
        """Return a tensor in a shape of numbers and sizes; one may be -1."""
        wanted = self.elements(sizes)
        if all(map(is_number, (*self.dims(value), *wanted))):
            known = [int(d) for d in wanted]
            if -1 in known:
                rest = int(np.prod([d for d in known if d != -1]))
                known[known.index(-1)] = int(np.prod(self.shape(value))) // rest if rest else 0
            if tuple(known) == self.shape(value):
                return value
            if 0 in known:
                return typed(relay_op.zeros(tuple(known), self.dtype(value)))
            return typed(relay_op.reshape(value, newshape=tuple(known)))
        from tilewright.relay.frontend.dimensions import resolved

        dims = resolved(self.dims(value), wanted, allowzero=True)
        shape = None if any(s is None for s in sizes) else self.vector(sizes)
        return typed(reshape_to(self, value, dims, shape, allowzero=True))

    def expand(self, value: RelayExpr, sizes: Sequence[Any]) -> RelayExpr:
        """Broadcast a tensor to sizes."""
        wanted, own = self.elements(sizes), self.dims(value)
        if all(map(is_number, (*own, *wanted))):
            return value if list(wanted) == own else typed(relay_op.broadcast_to(value, tuple(wanted)))
        return typed(expand_to(self, value, wanted, self.vector(sizes)))

    def full(self, sizes: Sequence[Any], value: Any, dtype: str) -> RelayExpr:
        """Return a tensor of one value."""
        wanted, fill = self.elements(sizes), self.number(value, dtype)
        if all(map(is_number, wanted)):
            return typed(relay_op.full(fill, tuple(wanted), dtype))
        return typed(filled(fill, wanted, self.vector(sizes), dtype))

    def permute(self, value: RelayExpr, axes: Sequence[int]) -> RelayExpr:
        """Return a tensor with its dimensions in another order."""
        return value if list(axes) == list(range(len(axes))) else typed(relay_op.transpose(value, axes=tuple(axes)))

    def sizes(self, value: RelayExpr) -> list[Any]:
        """Return all dimensions as integers of the program."""
        return [self.dim_size(value, axis) for axis in range(self.rank(value))]

    # ---- operators that ONNX has too ----

    def part(self, op_type: str, inputs: Sequence[RelayExpr | None], domain: str = "", opset: int = OPSET,
             outputs: int = 1, **attributes: Any) -> Any:  # fmt: skip
        """Return the result of one of ONNX's operators as a part of this node: what both front ends do is done once."""
        return part_of(
            self.importer, described(self.node), self.node.name, op_type, inputs, attributes, domain, opset, outputs
        )

    def chain(self, value: RelayExpr, *steps: Callable[[RelayExpr], RelayExpr]) -> RelayExpr:
        """Apply functions one after the other."""
        for step in steps:
            value = typed(step(value))
        return value

    def is_var(self, value: Any) -> TypeGuard[Var]:
        """Return whether an operand is an input or a parameter."""
        return isinstance(value, Var)


def pairs(values: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return consecutive pairs."""
    return list(itertools.pairwise(values))[::2]
