"""Patterns of parts of dataflow graphs.

Grammar::

    p ::= ExprPattern(e) | VarPattern(name) | ConstantPattern | WildcardPattern          leaves
        | ScalarPattern(value?, tolerance) | FilledPattern(value)                        constants
        | CallPattern(p, p*?) | FunctionPattern(p*?, p) | TuplePattern(p*?) | TupleGetItemPattern(p, index?)
        | IfPattern(p, p, p) | LetPattern(p, p, p)                                       one node and its parts
        | AttrPattern(p, attrs) | TypePattern(p, type) | ShapePattern(p, shape) | DataTypePattern(p, dtype)
        | AltPattern(p, p)                                                               the first that matches
        | ProductPattern(number, p*)                                                     factors in any order
        | DominatorPattern(parent, path, child)                                          a subgraph of any size

``p*?`` may be None: any number of parts. A pattern that occurs twice in another matches one expression only::

    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    biased = conv.optional(lambda x: is_op("nn.bias_add")(x, wildcard()))
    is_op("nn.relu")(biased).match(expr)

Names follow ``tvm.relay.dataflow_pattern`` of TVM 0.8, and ``redirect_to`` later TVM. Patterns of scalars, of filled
constants and of products are not in TVM.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from tilewright.ir import walk
from tilewright.ir.attrs import DictAttrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.node import Node, register_printer
from tilewright.ir.op import Op
from tilewright.ir.trampoline import Steps, run
from tilewright.ir.type import Type


class DFPattern(Node):
    """Base of all patterns. A call of one is the pattern of a call; ``|``, ``+``, ``-``, ``*``, ``/`` combine two."""

    match_expr: ClassVar[Callable[[DFPattern, RelayExpr], bool]]  # set by matcher
    partition_expr: ClassVar[Callable[..., RelayExpr]]  # set by partitioner

    def __call__(self, *args: DFPattern | None) -> CallPattern:
        return CallPattern(self, None if args == (None,) else args)

    def __or__(self, other: DFPattern) -> AltPattern:
        return AltPattern(self, other)

    def __add__(self, other: DFPattern) -> CallPattern:
        return is_op("add")(self, other)

    def __sub__(self, other: DFPattern) -> CallPattern:
        return is_op("subtract")(self, other)

    def __mul__(self, other: DFPattern) -> CallPattern:
        return is_op("multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> CallPattern:
        return is_op("divide")(self, other)

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """Match this pattern where the operator, call or function has these attributes."""
        return AttrPattern(self, attrs)

    def has_type(self, ttype: Type) -> TypePattern:
        """Match this pattern where the expression has the type ``ttype``."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """Match this pattern where the expression is a tensor of ``dtype``."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """Match this pattern where the expression is a tensor of ``shape``."""
        return ShapePattern(self, shape)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """Match this pattern as the end of a subgraph that begins at ``parent``; the nodes between match ``path``."""
        return DominatorPattern(parent, wildcard() if path is None else path, self)

    def optional(self, option_constructor: Callable[[DFPattern], DFPattern]) -> AltPattern:
        """Match this pattern alone, or the result of ``option_constructor`` on it."""
        return self | option_constructor(self)

    def match(self, expr: RelayExpr) -> bool:
        """Return whether ``expr`` matches; raise TypeInferenceError where the pattern asks for the type of an
        untyped expression.
        """
        return DFPattern.match_expr(self, expr)

    def partition(
        self,
        expr: RelayExpr,
        attrs: Mapping[str, Any] | None = None,
        check: Callable[[RelayExpr], bool] = lambda _: True,
    ) -> RelayExpr:
        """Replace each match in ``expr`` by the call of a function; see ``partition``."""
        return DFPattern.partition_expr(self, expr, attrs, check)


class ExprPattern(DFPattern):
    """One expression, by structure; an operator by name."""

    expr: RelayExpr


class VarPattern(DFPattern):
    """A local variable; of any name where ``name`` is empty."""

    name: str = ""


class ConstantPattern(DFPattern):
    """Any constant."""

    def __init__(self) -> None:
        self._init()


class ScalarPattern(ConstantPattern):
    """A constant of one element: of any value, or of ``value`` within a relative ``tolerance``."""

    value: float | None
    tolerance: float

    def __init__(self, value: float | None, tolerance: float = 0.0) -> None:
        self._init(value, tolerance)

    def holds(self, number: float) -> bool:
        """Return whether ``number`` is a value of the pattern."""
        return self.value is None or math.isclose(number, self.value, rel_tol=self.tolerance)


class FilledPattern(ConstantPattern):
    """A constant of one or more numbers, each of which is ``value``."""

    value: float

    def __init__(self, value: float) -> None:
        self._init(value)


class WildcardPattern(DFPattern):
    """Anything."""

    __slots__ = ("_redirect",)
    _redirect: DFPattern | None

    def __init__(self) -> None:
        self._init()
        object.__setattr__(self, "_redirect", None)

    @property
    def redirection(self) -> DFPattern | None:
        """Return the pattern that this stands for by ``redirect_to``, if any."""
        return self._redirect

    def redirect_to(self, pattern: DFPattern) -> None:
        """Make this wildcard stand for ``pattern``, which may contain it, to build recursive patterns.

        ``p = wildcard(); p.redirect_to(is_op("add")(p, wildcard()) | is_var())`` matches chains of any length.
        This is the only mutation of patterns: a cycle cannot be built from immutable parts.
        """
        object.__setattr__(self, "_redirect", pattern)


class CallPattern(DFPattern):
    """A call; with any arguments where ``args`` is None. ``add`` and ``multiply`` match in either order of arguments,
    and ``a * b / c`` matches ``a * (b / c)`` and the other way round.
    """

    op: DFPattern
    args: tuple[DFPattern, ...] | None

    def __init__(self, op: DFPattern, args: Sequence[DFPattern | None] | None) -> None:
        self._init(op, None if args is None else _parts("CallPattern", args))


class ProductPattern(DFPattern):
    """A number times ``factors``, in any order and nesting.

    ``multiply``, ``divide`` by a constant and ``power`` of 2 or 3 are factorized; constants of one element multiply to
    the number.
    """

    number: ScalarPattern
    factors: tuple[DFPattern, ...]

    def __init__(self, number: ScalarPattern, factors: Sequence[DFPattern]) -> None:
        self._init(number, _parts("ProductPattern", factors))


class FunctionPattern(DFPattern):
    """A function literal; with any parameters where ``params`` is None."""

    params: tuple[DFPattern, ...] | None
    body: DFPattern

    def __init__(self, params: Sequence[DFPattern] | None, body: DFPattern) -> None:
        self._init(None if params is None else _parts("FunctionPattern", params), body)


class IfPattern(DFPattern):
    """A conditional."""

    cond: DFPattern
    true_branch: DFPattern
    false_branch: DFPattern


class LetPattern(DFPattern):
    """``let var = value; body``"""

    var: DFPattern
    value: DFPattern
    body: DFPattern


class TuplePattern(DFPattern):
    """A tuple; with any fields where ``fields`` is None."""

    fields: tuple[DFPattern, ...] | None

    def __init__(self, fields: Sequence[DFPattern] | None) -> None:
        self._init(None if fields is None else _parts("TuplePattern", fields))

    def __getitem__(self, index: int) -> DFPattern:
        if self.fields is None or not 0 <= index < len(self.fields):
            raise IndexError("TuplePattern index out of range")
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields or ())

    def astype(self, _: Any) -> None:
        """Raise: tuples have no dtype."""
        raise TypeError("astype cannot be used on TuplePattern")


class TupleGetItemPattern(DFPattern):
    """Field ``index`` of a tuple; any field where it is None."""

    tuple: DFPattern
    index: int | None

    def __init__(self, tuple_value: DFPattern, index: int | None = None) -> None:
        self._init(tuple_value, index)


class AltPattern(DFPattern):
    """Either pattern, ``left`` first."""

    left: DFPattern
    right: DFPattern


class TypePattern(DFPattern):
    """An expression of one type."""

    pattern: DFPattern
    type: Type


class DataTypePattern(DFPattern):
    """A tensor of one dtype."""

    pattern: DFPattern
    dtype: str


class ShapePattern(DFPattern):
    """A tensor of one shape."""

    pattern: DFPattern
    shape: Any

    def __init__(self, pattern: DFPattern, shape: Sequence[Any]) -> None:
        self._init(pattern, (*shape,))


class AttrPattern(DFPattern):
    """An operator, call or function that has at least these attributes."""

    pattern: DFPattern
    attrs: DictAttrs

    def __init__(self, pattern: DFPattern, attrs: Mapping[str, Any] | DictAttrs) -> None:
        self._init(pattern, attrs if isinstance(attrs, DictAttrs) else DictAttrs(attrs))


class DominatorPattern(DFPattern):
    """A subgraph of any size: every path from ``child`` to the inputs goes through nodes that match ``path``, to the
    one node that matches ``parent``, and all values on these paths are used by ``child`` alone.
    """

    parent: DFPattern
    path: DFPattern
    child: DFPattern


def _parts(what: str, patterns: Sequence[Any]) -> tuple[DFPattern, ...]:
    for index, pattern in enumerate(patterns):
        if not isinstance(pattern, DFPattern):
            raise TypeError(
                f"part {index} of a {what} is a {type(pattern).__name__}, not a pattern; "
                "use wildcard(), or is_expr(...) for a certain expression"
            )
    return (*patterns,)


def sub_patterns(pattern: DFPattern) -> tuple[DFPattern, ...]:
    """Return the parts of a pattern, in the order of the parameters of partitioned functions."""
    match pattern:
        case CallPattern():
            return (pattern.op, *(pattern.args or ()))
        case FunctionPattern():
            return (*(pattern.params or ()), pattern.body)
        case TuplePattern():
            return pattern.fields or ()
        case TupleGetItemPattern():
            return (pattern.tuple,)
        case IfPattern():
            return (pattern.cond, pattern.true_branch, pattern.false_branch)
        case LetPattern():
            return (pattern.var, pattern.value, pattern.body)
        case AltPattern():
            return (pattern.left, pattern.right)
        case ProductPattern():
            return pattern.factors
        case AttrPattern() | TypePattern() | DataTypePattern() | ShapePattern():
            return (pattern.pattern,)
        case DominatorPattern():
            return (pattern.parent, pattern.path, pattern.child)
        case WildcardPattern() if pattern.redirection is not None:
            return (pattern.redirection,)
    return ()


def pattern_order(pattern: DFPattern) -> list[DFPattern]:
    """Return every pattern in ``pattern`` once, parts first (where redirections make no cycle)."""
    return walk.post_order([pattern], sub_patterns)


def is_var(name: str = "") -> VarPattern:
    """Match a variable, of that name if there is one."""
    return VarPattern(name)


def is_constant() -> ConstantPattern:
    """Match any constant."""
    return ConstantPattern()


def is_scalar(value: float | None = None, tolerance: float = 0.0) -> ScalarPattern:
    """Match a constant of one element, of any value or of about ``value``; ``tolerance`` is relative."""
    return ScalarPattern(value, tolerance)


def is_filled(value: float) -> FilledPattern:
    """Match a constant of any shape, each element of which is ``value``."""
    return FilledPattern(value)


def is_product(*factors: DFPattern, number: ScalarPattern | None = None) -> ProductPattern:
    """Match the product of ``factors`` and of a ``number``, by default 1."""
    return ProductPattern(number or ScalarPattern(1.0), factors)


def is_expr(expr: RelayExpr) -> ExprPattern:
    """Match an expression that is structurally equal to ``expr``."""
    return ExprPattern(expr)


def is_op(op_name: str) -> ExprPattern:
    """Match the operator ``op_name``; raise TilewrightError when there is none. Call it for the pattern of a call."""
    return ExprPattern(Op.get(op_name))


def is_tuple(fields: Sequence[DFPattern] | None) -> TuplePattern:
    """Match a tuple of these fields; of any fields for None."""
    return TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """Match field ``index`` of a tuple; any field for None."""
    return TupleGetItemPattern(tuple_value, index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> IfPattern:
    """Match a conditional."""
    return IfPattern(cond, true_branch, false_branch)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> LetPattern:
    """Match a let."""
    return LetPattern(var, value, body)


def wildcard() -> WildcardPattern:
    """Match anything."""
    return WildcardPattern()


def has_type(ttype: Type, pattern: DFPattern | None = None) -> TypePattern:
    """Match an expression of the type ``ttype`` that matches ``pattern``."""
    return TypePattern(pattern or wildcard(), ttype)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """Match a tensor of ``dtype`` that matches ``pattern``."""
    return DataTypePattern(pattern or wildcard(), dtype)


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> ShapePattern:
    """Match a tensor of ``shape`` that matches ``pattern``."""
    return ShapePattern(pattern or wildcard(), shape)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """Match an expression that has these attributes and matches ``pattern``."""
    return AttrPattern(pattern or wildcard(), attrs)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DominatorPattern:
    """Match the subgraph from ``parent`` over ``path`` to ``child``."""
    return DominatorPattern(parent, path, child)


def _many(parts: Sequence[DFPattern] | None, entered: dict[DFPattern, None]) -> Steps[str]:
    if parts is None:
        return "..."
    texts = []
    for part in parts:
        texts.append((yield _text(part, entered)))
    return ", ".join(texts)


def _text(pattern: DFPattern, entered: dict[DFPattern, None]) -> Steps[str]:
    """Return the pattern as ``nn.relu(add(nn.conv2d(*, *), *))``."""
    match pattern:
        case ExprPattern():
            return str(pattern.expr)
        case VarPattern():
            return f"%{pattern.name}" if pattern.name else "a variable"
        case ScalarPattern() | FilledPattern():
            return "a scalar" if pattern.value is None else str(pattern.value)
        case ConstantPattern():
            return "a constant"
        case WildcardPattern():
            if pattern.redirection is None or pattern in entered:
                return "*"
            return (yield _text(pattern.redirection, entered | {pattern: None}))
        case CallPattern():
            op = yield _text(pattern.op, entered)
            return f"{op}({(yield _many(pattern.args, entered))})"
        case FunctionPattern():
            params = yield _many(pattern.params, entered)
            return f"fn ({params}) {{ {(yield _text(pattern.body, entered))} }}"
        case TuplePattern():
            return f"({(yield _many(pattern.fields, entered))})"
        case TupleGetItemPattern():
            return f"{(yield _text(pattern.tuple, entered))}.{'*' if pattern.index is None else pattern.index}"
        case AltPattern():
            return f"({(yield _text(pattern.left, entered))} | {(yield _text(pattern.right, entered))})"
        case ProductPattern():
            number = yield _text(pattern.number, entered)
            return f"product({number}, {(yield _many(pattern.factors, entered))})"
        case AttrPattern():
            inner = yield _text(pattern.pattern, entered)
            return f"{inner}[{', '.join(f'{k}={v}' for k, v in pattern.attrs.items())}]"
        case TypePattern() | DataTypePattern() | ShapePattern():
            inner = yield _text(pattern.pattern, entered)
            return f"{inner}: {_annotation(pattern)}"
    name = type(pattern).__name__.removesuffix("Pattern").lower()
    return f"{name}({(yield _many(sub_patterns(pattern), entered))})"


def _annotation(pattern: TypePattern | DataTypePattern | ShapePattern) -> str:
    match pattern:
        case TypePattern():
            return str(pattern.type)
        case DataTypePattern():
            return pattern.dtype
    return f"({', '.join(map(repr, pattern.shape))})"


register_printer(DFPattern, lambda pattern: run(_text(pattern, {})))
