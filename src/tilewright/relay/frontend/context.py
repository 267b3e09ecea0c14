"""The base of all front ends' converter contexts: types, shapes and axes of expressions, and errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NoReturn

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.frontend.dimensions import element
from tilewright.relay.type_infer import infer_expr


def typed(expr: RelayExpr) -> RelayExpr:
    """Return ``expr`` with its checked type."""
    return expr if expr.checked_type_or_none is not None else infer_expr(expr)


class ConverterContext(ABC):
    """An operator of a model while it is converted.

    Attributes:
        error: of models that are not valid.
        remedy: what a user does about dimensions that must be known, for messages.
    """

    error: ClassVar[type[TilewrightError]] = TilewrightError
    remedy: ClassVar[str] = ""

    @property
    @abstractmethod
    def place(self) -> str:
        """Return the operator's name in messages."""

    def fail(self, message: str) -> NoReturn:
        """Raise an error that names this operator."""
        raise self.error(f"{self.place}: {message}")

    def unsupported(self, message: str) -> NoReturn:
        """Raise an UnsupportedError that names this operator."""
        raise UnsupportedError(f"{self.place}: {message}")

    def type_of(self, expr: RelayExpr) -> Type:
        """Return the inferred type of an expression."""
        return typed(expr).checked_type

    def tensor_type(self, expr: RelayExpr) -> TensorType:
        """Return the inferred tensor type of an expression."""
        found = self.type_of(expr)
        if not isinstance(found, TensorType):
            self.fail(f"expected a tensor, found {found}")
        return found

    def dtype(self, expr: RelayExpr) -> str:
        """Return the data type of a tensor."""
        return self.tensor_type(expr).dtype

    def rank(self, expr: RelayExpr) -> int:
        """Return the number of dimensions of a tensor."""
        return len(self.tensor_type(expr).shape)

    def dims(self, expr: RelayExpr) -> list[Any]:
        """Return the dimensions: numbers, expressions over named dimensions, None for unknown ones."""
        return [element(d) for d in self.tensor_type(expr).shape]

    def is_dynamic(self, expr: RelayExpr) -> bool:
        """Return whether a dimension is no number."""
        return self.tensor_type(expr).is_dynamic

    def shape(self, expr: RelayExpr) -> tuple[int, ...]:
        """Return a shape of known numbers."""
        found = self.tensor_type(expr)
        if found.is_dynamic:
            what = f"it needs known dimensions, and an input is a {found}"
            raise UnsupportedError(f"{self.place}: {what}" + (f"; {self.remedy}" if self.remedy else ""))
        return found.concrete_shape

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front; out of range is an error."""
        if not -rank <= axis < max(rank, 1):
            self.fail(f"axis {axis} is out of range for a tensor of rank {rank}")
        return axis % rank if rank else 0
