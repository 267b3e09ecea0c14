"""Tensors of tensor expressions: the symbolic outputs of operations.

Whole-tensor arithmetic (``A + B``) is in ``te.broadcast``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.node import Node
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.tir.expr import ProducerLoad

if TYPE_CHECKING:
    from tilewright.te.operation import Operation

# What Python's operators mean on whole tensors, by name; te.broadcast, which builds on this module, fills it.
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {}


def set_tensor_arithmetic(functions: Mapping[str, Callable[[Any, Any], Any]]) -> None:
    """Install the functions of whole-tensor arithmetic.

    Parameters
    ----------
    functions : name -> (lhs, rhs) -> Tensor
        The names are add, subtract, multiply, divide, floor_divide, mod, power, left_shift, right_shift,
        bitwise_and, bitwise_or, bitwise_xor and cast (``rhs`` is the dtype); one of the sides is a Tensor, the
        other a Tensor, a number or a scalar expression.
    """
    _ARITHMETIC.update(functions)


def _apply(name: str, lhs: Any, rhs: Any) -> Any:
    return _ARITHMETIC[name](lhs, rhs)


class TensorSlice:
    """A tensor with some indices fixed: ``T[i]`` of a 2-d tensor, ``T[i, 0:8]`` in a tensor intrinsic call."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: tuple[Any, ...]) -> None:
        self.tensor = tensor
        self.indices = indices

    def __getitem__(self, indices: Any) -> TensorSlice | PrimExpr:
        return self.tensor[self.indices + _as_tuple(indices)]

    def asobject(self) -> PrimExpr:
        """The element, as an expression; raises TilewrightError when indices are missing."""
        return self.tensor(*self.indices)

    @property
    def dtype(self) -> str:
        """The dtype of the elements."""
        return self.tensor.dtype


def _as_tuple(indices: Any) -> tuple[Any, ...]:
    return tuple(indices) if isinstance(indices, (tuple, list)) else (indices,)


def _output(op: Operation, index: int) -> Tensor:
    return op.output(index)


class Tensor(Node):
    """Output ``value_index`` of an operation. ``T[i, j]`` and ``T(i, j)`` read an element.

    ``op.output(k)`` always returns the same object, so tensors compare and hash by identity.
    """

    shape: tuple[PrimExpr, ...]
    dtype: str
    op: Operation
    value_index: int

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def name(self) -> str:
        """Name of the operation, with the output's number when it has several."""
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}.v{self.value_index}"

    @property
    def axis(self) -> Any:
        """The iteration variables of the operation's outputs."""
        return self.op.axis  # type: ignore[attr-defined]

    def __call__(self, *indices: Any) -> PrimExpr:
        """The element at ``indices``, as an expression."""
        if len(indices) != self.ndim:
            raise TilewrightError(
                f"tensor {self.name} has {self.ndim} dimensions, but {len(indices)} indices are given"
            )
        found = [as_expr(i) for i in indices]
        for index in found:
            if "int" not in index.dtype:
                raise TilewrightError(
                    f"tensor {self.name} is indexed with {index} of dtype {index.dtype}; use integers"
                )
        return ProducerLoad(self, found)

    def __getitem__(self, indices: Any) -> Any:
        indices = _as_tuple(indices)
        if len(indices) > self.ndim:
            raise TilewrightError(
                f"tensor {self.name} has {self.ndim} dimensions, but {len(indices)} indices are given"
            )
        if len(indices) < self.ndim or any(isinstance(i, slice) for i in indices):
            return TensorSlice(self, indices)
        return self(*indices)

    def __reduce__(self) -> tuple[Any, ...]:
        return _output, (self.op, self.value_index)

    def __iter__(self) -> Any:
        raise TypeError(f"tensor {self.name} is symbolic and cannot be iterated over")

    def __str__(self) -> str:
        return f"Tensor(shape=[{', '.join(map(repr, self.shape))}], op.name={self.op.name})"

    def __add__(self, other: Any) -> Any:
        return _apply("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _apply("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _apply("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return _apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _apply("divide", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _apply("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _apply("floor_divide", other, self)

    def __mod__(self, other: Any) -> Any:
        return _apply("mod", self, other)

    def __pow__(self, other: Any) -> Any:
        return _apply("power", self, other)

    def __lshift__(self, other: Any) -> Any:
        return _apply("left_shift", self, other)

    def __rshift__(self, other: Any) -> Any:
        return _apply("right_shift", self, other)

    def __and__(self, other: Any) -> Any:
        return _apply("bitwise_and", self, other)

    def __or__(self, other: Any) -> Any:
        return _apply("bitwise_or", self, other)

    def __xor__(self, other: Any) -> Any:
        return _apply("bitwise_xor", self, other)

    def __neg__(self) -> Any:
        return _apply("multiply", self, -1)

    def astype(self, dtype: str) -> Any:
        """The whole tensor converted to ``dtype``."""
        return _apply("cast", self, dtype)
