"""Specializations of a program for some of its shapes, beside the general one.

Before, with ``PassContext(config={"relay.vm.specialize": "batch=1,seq=128;batch=1,seq=1:16"})``::

    def @main(%ids: Tensor[(batch, seq), int64]) { ... }

after::

    def @main(%ids: Tensor[(batch, seq), int64], specialised="[...]") { ... }
    def @main$batch=1,seq=128(%ids: Tensor[(1, 128), int64], version=1) { ... }
    def @main$batch=1,seq=1:16(%ids: Tensor[(1, seq), int64], version=1) { ... }

Passes run on each specialization separately and use what is known of its shapes. ``vm_codegen.py`` makes main begin
with a test of its inputs and return the result of the first specialization whose guard they satisfy. Equal constants
are one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TilewrightError, did_you_mean
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import DimVar, IntImm, PrimExpr
from tilewright.ir.prim_expr import Var as PrimVar
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call, Function, Var
from tilewright.relay.function_attributes import IS_SPECIALIZATION, SPECIALIZATIONS
from tilewright.relay.type_functor import TypeMutator
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, substitute
from tilewright.tir.visitor import substitute as substitute_dims

OPTION = "relay.vm.specialize"

Guard = list[tuple[int, int, int, int, int]]
"""The inputs that a specialization takes: number, axis, least and greatest (-1: none) extent, divisor of the extent."""


@dataclass(frozen=True)
class Specialization:
    """A specialization of a program: its name, the program, and the guard that its inputs satisfy."""

    name: str
    mod: IRModule
    guard: Guard


def specializations_of(mod: IRModule, text: str) -> list[Specialization]:
    """Return the specializations of a program that the option asks for, before any pass.

    Parameters
    ----------
    text : ``batch=1,seq=128;batch=1,seq=1:16``: for each specialization, numbers or the least and the greatest, by name

    Raises
    ------
    TilewrightError : ``text`` has another form, a parameter of main is no tensor, main has no dimension of a name, or
        the value is outside of the dimension's limits
    """
    mod = infer_module(mod)
    main = mod["main"]
    assert isinstance(main, Function)
    places: dict[DimVar, tuple[int, int]] = {}
    for index, param in enumerate(main.params):
        type_ = param.checked_type
        if not isinstance(type_, TensorType):
            raise TilewrightError(f"{OPTION}: the parameter %{param.name_hint} of main is no tensor")
        for axis, dim in enumerate(type_.shape):
            if isinstance(dim, DimVar):
                places.setdefault(dim, (index, axis))
    found = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        dims = _parse(part, list(places))
        guard = [
            (*places[old], *((new.value, new.value, 1) if isinstance(new, IntImm) else _limits(new)))
            for old, new in dims.items()
        ]
        name = f"main${','.join(part.split())}"
        found[name] = Specialization(name, _bound(mod, dims), guard)
    return list(found.values())


def _limits(dim: DimVar) -> tuple[int, int, int]:
    return dim.low, -1 if dim.high is None else dim.high, dim.multiple


def _parse(text: str, known: Sequence[DimVar]) -> dict[DimVar, IntImm | DimVar]:
    """Return the values or limits of named dimensions in ``batch=1,seq=1:16``."""
    by_name = {dim.name: dim for dim in known}
    found: dict[DimVar, IntImm | DimVar] = {}
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not name or not equals:
            raise TilewrightError(f"{OPTION}: {item!r} is not of the form seq=128 or seq=1:16")
        if name not in by_name:
            names = ", ".join(f"{dim.name} ({dim.limits})" for dim in known) or "none"
            hint = did_you_mean(name, list(by_name))
            raise TilewrightError(f"{OPTION}: main has no dimension {name!r}{hint}; its named dimensions are {names}")
        if by_name[name] in found:
            raise TilewrightError(f"{OPTION}: {text!r} sets {name} twice")
        found[by_name[name]] = _narrowed(by_name[name], value)
    return found


def _narrowed(dim: DimVar, value: str) -> IntImm | DimVar:
    """Return the number that a dimension becomes, or a dimension with narrower limits."""
    low, colon, high = value.partition(":")
    try:
        least = int(low) if low or not colon else dim.low
        most = least if not colon else int(high) if high else dim.high
    except ValueError:
        raise TilewrightError(f"{OPTION}: {dim.name}={value} is not of the form seq=128 or seq=1:16") from None
    beyond = dim.high is not None and (most is None or most > dim.high)
    if least < dim.low or beyond or (most is not None and most < least):
        raise TilewrightError(f"{OPTION}: {dim.name}={value} is not within {dim.limits}, which {dim.name} may be")
    if least != most:
        return DimVar(dim.name, least, most, dim.multiple)
    if least % dim.multiple:
        raise TilewrightError(f"{OPTION}: {dim.name} is a multiple of {dim.multiple}, which {least} is not")
    return IntImm("int32", least)


class _TypesBound(TypeMutator):
    def __init__(self, dims: Mapping[PrimVar, PrimExpr]) -> None:
        super().__init__()
        self.dims = dims

    def visit_tensor_type(self, typ: TensorType) -> Type:
        shape = [substitute_dims(d, self.dims) for d in typ.shape]
        same = all(a is b for a, b in zip(shape, typ.shape, strict=True))
        return typ if same else TensorType(shape, typ.dtype)


class _Binder(ExprMutator):
    """Replace named dimensions by numbers, or by other dimensions, in types and attributes."""

    def __init__(self, dims: Mapping[PrimVar, PrimExpr]) -> None:
        super().__init__()
        self.dims = dims
        self.types = _TypesBound(dims)

    def visit_var(self, expr: Var) -> RelayExpr:
        type_ = None if expr.type_annotation is None else self.types.visit(expr.type_annotation)
        return Var(expr.name_hint, type_)  # functions share no variables

    def visit_function(self, expr: Function) -> RelayExpr:
        made = super().visit_function(expr)
        assert isinstance(made, Function)
        return made if made.ret_type is None else made.replace(ret_type=self.types.visit(made.ret_type))

    def visit_call(self, expr: Call) -> RelayExpr:
        made = super().visit_call(expr)
        assert isinstance(made, Call)
        attrs = self._attrs(made.attrs) if isinstance(made.attrs, Attrs) else made.attrs
        return made if made is expr and attrs is made.attrs else Call(made.op, made.args, attrs, (), made.span)

    def _attrs(self, attrs: Attrs) -> Attrs:
        given = {name: getattr(attrs, name) for name in type(attrs)._fields}
        changed = {name: made for name, value in given.items() if (made := self._value(value)) is not value}
        return attrs.replace(**changed) if changed else attrs

    def _value(self, value: Any) -> Any:
        if isinstance(value, PrimExpr):
            return substitute_dims(value, self.dims)
        if isinstance(value, (tuple, list)):
            made = type(value)([self._value(item) for item in value])
            return value if all(a is b for a, b in zip(made, value, strict=True)) else made
        return value


def _bound(mod: IRModule, dims: Mapping[DimVar, IntImm | DimVar]) -> IRModule:
    known: dict[PrimVar, PrimExpr] = {old: new for old, new in dims.items()}
    binder = _Binder(known)
    made = mod.copy()
    for var, func in mod.items():
        if isinstance(func, Function):
            made[var] = binder.visit(func)
    return infer_module(made)


def with_specializations(mod: IRModule, specializations: Sequence[Specialization]) -> IRModule:
    """Return ``mod`` with the functions of its specializations; all have run the passes before fusion."""
    merged = mod.copy()
    for specialization in specializations:
        for var, func in _renamed(specialization).items():
            assert isinstance(func, Function)
            merged[var] = func.with_attr(IS_SPECIALIZATION.key, 1) if var.name_hint == specialization.name else func
    guards = json.dumps([(specialization.name, specialization.guard) for specialization in specializations])
    main = merged["main"]
    assert isinstance(main, Function)
    merged["main"] = main.with_attr(SPECIALIZATIONS.key, guards)
    return infer_module(merged)


def _renamed(specialization: Specialization) -> dict[GlobalVar, RelayExpr]:
    """Return the functions of a specialization under their own names."""
    suffix = specialization.name.removeprefix("main")
    functions = {var: func for var, func in specialization.mod.items() if isinstance(func, Function)}
    names = {var: GlobalVar(f"{var.name_hint}{suffix}") for var in functions}
    return {names[var]: substitute(func, names) for var, func in functions.items()}  # type: ignore[arg-type]
