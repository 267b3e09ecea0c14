"""Bases of all levels: expressions with a checked type, global names, functions."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from tilewright.ir.attrs import DictAttrs
from tilewright.ir.iter_var import Range as Range  # TVM's place of it
from tilewright.ir.node import BaseExpr
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.span import Span
from tilewright.ir.type import Type


class RelayExpr(BaseExpr):
    """Base of Relay expressions. ``checked_type`` exists once InferType has run.

    Type inference builds new nodes and sets the type of each as it is built (``with_checked_type``); a node's
    type never changes afterwards.
    """

    __slots__ = ("_checked_type",)
    make_call: ClassVar[Callable[..., Any]]  # set by relay.expr, which defines Call
    to_text: ClassVar[Callable[..., str]]  # set by relay.text.printer

    @property
    def checked_type(self) -> Type:
        """The inferred type; raises ValueError before InferType ran."""
        found = self.checked_type_or_none
        if found is None:
            raise ValueError(
                f"the type of this {type(self).__name__} is not known yet; run relay.transform.InferType() first"
            )
        return found

    @property
    def checked_type_or_none(self) -> Type | None:
        """The inferred type, or None before InferType ran."""
        return getattr(self, "_checked_type", None)

    @property
    def checked_type_(self) -> Type:
        """TVM's second name of ``checked_type``."""
        return self.checked_type

    def astext(self, show_meta_data: bool = True, annotate: Callable[[Any], str] | None = None) -> str:
        """The expression in Relay's text form; constants go to a metadata section unless it is left out."""
        return RelayExpr.to_text(self, version=True, show_meta_data=show_meta_data, annotate=annotate)

    def with_checked_type(self, checked_type: Type | None) -> Self:
        """Record the inferred type on a node that was just built, and return the node."""
        if checked_type is not None:
            object.__setattr__(self, "_checked_type", checked_type)
        return self


class GlobalVar(RelayExpr):
    """The name of a function of an ``IRModule``."""

    name_hint: str
    span: Span | None = None

    def __call__(self, *args: Any) -> Any:
        """Call the function: a Relay ``Call`` node."""
        return RelayExpr.make_call(self, args)


class CallingConv(enum.IntEnum):
    """Values of the attribute ``calling_conv`` of functions; TVM 0.8 has no number for the plain C signature."""

    DEFAULT = 0
    C_PACKED_FUNC = 1
    DEVICE_KERNEL_LAUNCH = 2
    UNPACKED = 3


class BaseFunc(RelayExpr):
    """A function of any level (Relay ``Function``, TIR ``PrimFunc``); carries attributes."""

    module_to_text: ClassVar[Callable[[Any], str] | None] = None  # text of a module of such functions

    def get_attrs(self) -> DictAttrs:
        """The function's attributes."""
        attrs: DictAttrs = self.attrs  # type: ignore[attr-defined]
        return attrs

    def with_attr(self, attr_key_or_dict: str | Mapping[str, Any], attr_value: Any = None) -> Self:
        """Copy of this function with one attribute, or a mapping of attributes, set."""
        changes = dict(attr_key_or_dict) if isinstance(attr_key_or_dict, Mapping) else {attr_key_or_dict: attr_value}
        # programs written for TVM say IntImm("int32", 1) where a number is meant
        changes = {k: v.value if isinstance(v, IntImm) and v.dtype == "int32" else v for k, v in changes.items()}
        return self.replace(attrs=DictAttrs({**self.get_attrs(), **changes})).with_checked_type(
            self.checked_type_or_none
        )

    def without_attr(self, key: str) -> Self:
        """Copy of this function without the attribute ``key``."""
        rest = {k: v for k, v in self.get_attrs().items() if k != key}
        return self.replace(attrs=DictAttrs(rest)).with_checked_type(self.checked_type_or_none)
