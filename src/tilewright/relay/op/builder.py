"""Builders: the functions that users call to build calls of operators, derived from the operators' declarations.

::

    leaky_relu = builder(LeakyRelu, alpha=0.01)      # def leaky_relu(data, alpha=0.01)
    batch_norm = tuple_builder(BatchNorm)            # returns the fields of the result
    gather = builder(Gather, order="data axis indices")

A builder takes the operands (``inputs``) and then the attributes, by their names and defaults, or in the ``order``
that TVM has. Keywords replace defaults; ``...`` removes one. Operands may be numbers. Each attribute is converted to
the type of its field (``READERS``), so that ``strides=2`` serves two dimensions; an attribute that cannot be converted
is an error that names the operator and the argument.

``exports`` adds the builders of a package's modules to the package. Type checkers and editors see them in the
package's ``__init__.pyi``, which ``python -m tests.relay.op.builder_stubs`` writes.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.expr import Call, Constant, TupleWrapper
from tilewright.relay.op.attributes import (
    axes,
    computed,
    dims,
    floats,
    ints,
    number,
    operand,
    padding,
    pair,
    pairs,
    static_ints,
    tuple_operand,
    whole_int,
)
from tilewright.relay.op.definition import OpDef

if TYPE_CHECKING:
    from tilewright.relay import op as ops
else:

    class _Builders:
        """The builders of all operators, looked up when they are called: then every operator is declared."""

        def __getattr__(self, name: str) -> Any:
            return getattr(sys.modules[__package__], name)

    ops = _Builders()

F = TypeVar("F", bound=Callable[..., Any])
Reader = Callable[[Any], Any]
_EXPORTS: dict[str, dict[str, Callable[..., Any]]] = defaultdict(dict)


class Builder(Protocol):
    """Function that builds calls of the operator ``op``; the packages' stubs have its parameters."""

    op: Op

    def __call__(self, *args: Any, **kwargs: Any) -> Call:
        """Return a call of the operator."""


class Parameter(NamedTuple):
    """How to convert an argument, its type for type checkers, and the attribute's value where the program computes it.

    Values of exactly the type ``plain`` need no conversion.
    """

    read: Reader
    annotation: str
    computed: Any = ()
    plain: type | None = None


def _ints(value: Any) -> tuple[int, ...]:
    return static_ints(value, "the value")


def _int(value: Any) -> int:
    return _ints(value)[0] if isinstance(value, Constant) else whole_int(value)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _empty(value: Any) -> bool:
    return value is None or (hasattr(value, "__len__") and len(value) == 0)


def _always(value: Any) -> Reader:
    return lambda _: value


def _spread(values: tuple[Any, ...], rank: int) -> tuple[Any, ...]:
    return values * rank if len(values) == 1 else values


def _or_none(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


READERS: Mapping[str, Parameter] = {
    "int": Parameter(_int, "int", 0, int),
    "float": Parameter(lambda value: float(number(value)), "float", 0.0, float),
    "bool": Parameter(bool, "bool", False, bool),
    "str": Parameter(_text, "str", "", str),
    "int | None": Parameter(_or_none(_int), "int | None", None, int),
    "tuple[int, ...]": Parameter(_ints, "Ints"),
    "tuple[int, ...] | None": Parameter(_or_none(_ints), "Ints | None"),
    "SomeAxes": Parameter(lambda value: None if _empty(value) else ints(value), "Ints | None"),
    "Pairs": Parameter(pairs, "RelayExpr | Sequence[Ints]"),
    "tuple[float, ...]": Parameter(floats, "Floats"),
    "int | tuple[int, ...] | None": Parameter(axes, "Axes"),
    "tuple[Any, ...]": Parameter(dims, "Shape"),
}
OPERAND, TUPLE_OPERAND = Parameter(operand, "Operand"), Parameter(tuple_operand, "Operand | Sequence[Operand]")
_ERRORS = (TypeError, ValueError, TilewrightError)


def _reader(attrs_type: type[Attrs], annotation: Any) -> Parameter:
    """Return the conversion for a field of the type ``annotation``; annotations may be texts."""
    annotation = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    if annotation in READERS:
        return READERS[annotation]
    rank: int = getattr(attrs_type, "rank", 2)
    match annotation:
        case "PerAxis":
            return Parameter(lambda value: pair(value, rank), "Ints")
        case "PerAxis | None":
            return Parameter(_or_none(lambda value: pair(value, rank)), "Ints | None")
        case "Extents":
            return Parameter(lambda value: _spread(dims(value), rank), "Shape")
        case "OutputSize":
            return Parameter(lambda value: () if _empty(value) else pair(value, rank), "Ints | None")
        case "Padding":
            return Parameter(lambda value: padding(value, rank), "Ints")
    raise TypeError(f"{attrs_type.__name__}: no builder reads fields of the type {annotation!r}; write one by hand")


@cache
def _template(count: int) -> CodeType:
    """Return the code of a function that passes its ``count`` arguments to ``build``."""
    names = ", ".join(f"a{i}" for i in range(count))
    made: CodeType = compile(f"lambda {names}: build({names})", "<builder>", "eval").co_consts[0]
    return made


def _function(
    name: str, module: str, parameters: Mapping[str, Parameter], defaults: Mapping[str, Any], build: Callable[..., Any]
) -> Any:
    """Return a function with these parameters that calls ``build``; copying code is faster than compiling it."""
    code = _template(len(parameters)).replace(co_varnames=tuple(parameters), co_name=name, co_qualname=name)
    values = tuple(defaults[p] for p in parameters if p in defaults)
    made: Any = FunctionType(code, {"build": build, "__name__": module}, name, values)
    made.__annotations__ = {p: parameters[p].annotation for p in parameters}
    return made


def _parameters(op: type[OpDef[Any]]) -> tuple[dict[str, Parameter], dict[str, Any]]:
    """Return the parameters of a builder in the order of the declaration, and the defaults of those that have one."""
    found = dict.fromkeys(op.inputs or (), TUPLE_OPERAND if op.takes_tuple else OPERAND)
    attrs_type = op.attrs_type
    if attrs_type is None:
        return found, {}
    types = {n: t for cls in reversed(attrs_type.__mro__) for n, t in vars(cls).get("__annotations__", {}).items()}
    fields = [name for name in attrs_type._fields if name not in attrs_type.internal]
    found |= {name: _reader(attrs_type, types[name]) for name in fields}
    return found, {name: value for name, value in attrs_type._defaults.items() if name in found}


def _derived(
    op: type[OpDef[Any]],
    name: str,
    module: str,
    order: str,
    changed: Mapping[str, Any],
    results: int = 1,
    computed: Sequence[str] = (),
) -> Any:
    parameters, defaults = _parameters(op)
    operands = len(op.inputs or ())
    names = list(parameters)
    defaults = {k: v for k, v in {**defaults, **changed}.items() if v is not ...}
    if order:
        parameters = {name: parameters[name] for name in order.split()}
    parameters |= {n: parameters[n]._replace(annotation=f"RelayExpr | {parameters[n].annotation}") for n in computed}
    place = {name: i for i, name in enumerate(parameters)}
    inputs = [(parameters[n].read, place[n]) for n in names[:operands]]
    fields = [
        (parameters[n].read, place[n], parameters[n].plain) if n in place else (_always(defaults[n]), 0, None)
        for n in names[operands:]
    ]
    callee, attrs_type = op.op, op.attrs_type
    dynamic = _dynamic(op, parameters, computed) if computed else None

    def build(*values: Any) -> Any:
        if dynamic is not None and (made := dynamic(values)):
            return made
        try:
            args = [v if isinstance(v := values[i], RelayExpr) else read(v) for read, i in inputs]
            found = [v if type(v := values[i]) is plain else read(v) for read, i, plain in fields]
            attrs = attrs_type(*found) if attrs_type is not None else None
        except _ERRORS as error:
            raise _named(error, op.name, parameters, values) from None
        made = Call(callee, args, attrs)
        return made if results == 1 else TupleWrapper(made, results)

    made = _function(name, module, parameters, defaults, build)
    made.__annotations__["return"] = "Call" if results == 1 else "TupleWrapper"
    made.__doc__ = op.__doc__ if attrs_type is None else f"{op.__doc__}\n\nAttributes: {attrs_type.__doc__}"
    made.op = op.op
    _export(made, name, module)
    return made


def _dynamic(
    op: type[OpDef[Any]], parameters: Mapping[str, Parameter], names: Sequence[str]
) -> Callable[[Sequence[Any]], Call | None]:
    """Build the call of the operator's form in ``relay.op.dyn``; None where the program computes none of ``names``."""
    attrs_type = op.attrs_type
    assert attrs_type is not None
    place = {name: i for i, name in enumerate(parameters)}
    inputs = [i for name, i in place.items() if name in names or name in (op.inputs or ())]
    fields = [name for name in attrs_type._fields if name in place]

    def build(values: Sequence[Any]) -> Call | None:
        if not computed(*[values[place[name]] for name in names]):
            return None
        attrs = {
            name: parameters[name].computed if name in names else parameters[name].read(values[place[name]])
            for name in fields
        }
        return Call(Op.get(f"dyn.{op.name}"), [operand(values[i]) for i in inputs], attrs_type(**attrs))

    return build


def _named(error: Exception, operator: str, parameters: Mapping[str, Parameter], values: Sequence[Any]) -> Exception:
    """Return the error of the first argument that cannot be converted, with the names of operator and argument."""
    for (name, parameter), value in zip(parameters.items(), values, strict=True):
        try:
            parameter.read(value)
        except _ERRORS as cause:
            return type(cause)(f"{operator}: {name}: {cause}")
    return error


def caller() -> str:
    """Return the module whose code called the caller of this function."""
    module: str = sys._getframe(2).f_globals["__name__"]
    return module


def builder(
    op: type[OpDef[Any]],
    name: str = "",
    *,
    order: str = "",
    required: bool = False,
    computed: str = "",
    module: str = "",
    **defaults: Any,
) -> Builder:
    """Return the builder of an operator and add it to the package of its module.

    Args:
        op: the declaration.
        name: the builder's name; by default the last part of the operator's name.
        order: the parameters in their order, where that is not operands and then attributes; attributes that are not
            listed keep their defaults.
        required: whether no parameter has a default.
        computed: attributes that the program may compute: then they are operands of the operator's form in ``dyn``.
        module: the builder's module; by default the caller's.
        defaults: defaults of parameters that differ from the attribute's; ``...`` for none.
    """
    changed = {**(dict.fromkeys(op.attrs_type._fields, ...) if required and op.attrs_type else {}), **defaults}
    return _derived(
        op, name or op.name.rpartition(".")[2], module or caller(), order, changed, computed=computed.split()
    )


def tuple_builder(op: type[OpDef[Any]], *, results: int, **defaults: Any) -> Callable[..., TupleWrapper]:
    """Return the builder, as of ``builder``, of an operator with ``results`` results; calls return them as a tuple
    wrapper.
    """
    return _derived(op, op.name.rpartition(".")[2], caller(), "", defaults, results)


def _export(function: Callable[..., Any], name: str, module: str) -> None:
    parent, _, last = module.rpartition(".")[0].rpartition(".")
    if last != "op":  # those of vm.py and memory.py are found there
        _EXPORTS[parent if last in ("reduce", "tensor", "transform") else f"{parent}.{last}"][name] = function


def is_derived(function: Callable[..., Any]) -> bool:
    """Return whether the function is a derived builder."""
    return isinstance(function, FunctionType) and function.__code__.co_filename == "<builder>"


def exported(function: F) -> F:
    """Export a hand-written builder, as derived builders are."""
    _export(function, function.__name__, function.__module__)
    return function


def exports(namespace: dict[str, Any]) -> list[str]:
    """Add the builders of a package's modules to its ``namespace``, and return their names."""
    found = _EXPORTS[namespace["__name__"]]
    namespace.update(found)
    return sorted(found)
