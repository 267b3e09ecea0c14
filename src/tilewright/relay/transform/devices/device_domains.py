"""Device domains: the device of each expression of a program, found by unification.

The domain of a tensor, tuple, reference or data type is one device; that of a function has a domain for each parameter
and for the result::

    D ::= device | fn (D, ..., D) -> D

An operator, and a fused function, has all arguments and its result on one device, which may differ from call to call; a
function of Relay has its own devices, the same at every call. ``on_device`` states the domain of its argument,
and each use of it may be on another device (TVM's pass asks for a mark for each use); ``device_copy`` states the
domains of its argument and of its result. Constants are on the device of their use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.type import FuncType, Type
from tilewright.relay.adt import Constructor, Match, pattern_vars
from tilewright.relay.expr import (
    Call,
    Constant,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.relay.function_attributes import PARAM_DEVICE_TYPES, RESULT_DEVICE_TYPE
from tilewright.relay.op.annotation.devices import DeviceCopy, OnDevice
from tilewright.relay.op.definition import HOST, Place
from tilewright.relay.transform.common import call_of, open_children
from tilewright.relay.visitor import is_closed, post_order
from tilewright.runtime.device import Device, cpu


@dataclass(eq=False, slots=True)
class Domain:
    """A device (``device`` 0 while it is unknown) or, with ``parts``, a function's parameters and result."""

    device: int = 0
    cause: str = ""
    parts: tuple[Domain, ...] = ()
    parent: Domain | None = None

    @property
    def free(self) -> bool:
        """Return whether a device is still unknown."""
        return not self.device and not self.parts


def find(domain: Domain) -> Domain:
    """Return the representative of all domains that are unified with ``domain``."""
    root = domain
    while root.parent is not None:
        root = root.parent
    while domain.parent is not None:
        domain.parent, domain = root, domain.parent
    return root


def leaves(domain: Domain) -> list[Domain]:
    """Yield the devices in a domain."""
    root = find(domain)
    return [leaf for part in root.parts for leaf in leaves(part)] if root.parts else [root]


def result_of(domain: Domain) -> Domain:
    """Return the device of a function's result, which is the function's own."""
    root = find(domain)
    while root.parts:
        root = find(root.parts[-1])
    return root


def domain_of(type_: Type, device: int = 0, cause: str = "") -> Domain:
    """Return a domain of the kind of ``type_``, its result on ``device``."""
    if not isinstance(type_, FuncType):
        return Domain(device, cause)
    return Domain(parts=(*(domain_of(t) for t in type_.arg_types), domain_of(type_.ret_type, device, cause)))


def unify(a: Domain, b: Domain, where: RelayExpr) -> None:
    """Require two domains to be equal.

    A function that must be on one device, such as the field of a tuple, has all its parameters and its result there.

    Raises:
        TilewrightError: they are on different devices; ``where`` is the expression in which they meet.
    """
    a, b = find(a), find(b)
    if a is b:
        return
    if a.parts and b.parts:
        for x, y in zip(a.parts, b.parts, strict=True):
            unify(x, y, where)
    elif a.parts or b.parts:
        single, function = (b, a) if a.parts else (a, b)
        for leaf in leaves(function):
            unify(single, leaf, where)
    elif a.device and b.device:
        if a.device != b.device:
            raise _contradiction(a, b, where)
        b.parent = a
    elif a.device:
        b.parent = a
    else:
        a.parent = b


def device_name(device_type: int) -> str:
    """Return a device type in words and as a number: ``cuda (2)``."""
    return f"{str(Device(device_type, 0)).partition('(')[0]} ({device_type})"


def describe(expr: RelayExpr) -> str:
    """Describe an expression for a message: the variable, or the operator and the place in the source that it came
    from.
    """
    while (mark := call_of(expr, OnDevice.op)) is not None:
        expr = mark.args[0]
    match expr:
        case Var():
            return f"%{expr.name_hint}"
        case GlobalVar():
            return f"@{expr.name_hint}"
        case TupleGetItem():
            return f"field {expr.index} of {describe(expr.tuple_value)}"
        case Call() if isinstance(expr.op, Op):
            what = f"{expr.op.name}({', '.join(_argument(a) for a in expr.args)})"
        case Call():
            what = f"a call of {describe(expr.op)}"
        case _:
            what = f"a {type(expr).__name__}"
    span = getattr(expr, "span", None)
    return f"{what} at {span.source_name.name}" if span is not None else what


def _argument(expr: RelayExpr) -> str:
    return f"%{expr.name_hint}" if isinstance(expr, Var) else "..."


def _contradiction(a: Domain, b: Domain, where: RelayExpr) -> TilewrightError:
    return TilewrightError(
        f"{describe(where)} is to be on {device_name(a.device)}, by {a.cause}, and on {device_name(b.device)}, by "
        f"{b.cause}; put relay.annotation.on_device(value, device) around what is to be copied between the two"
    )


def _is_movable(expr: RelayExpr) -> bool:
    """Return whether an expression may be used on any device, since it is copied there."""
    mark = call_of(expr, OnDevice.op)
    return mark is not None and not mark.attrs.is_fixed and not isinstance(expr.checked_type, FuncType)  # type: ignore[union-attr]


def _of_on_device(call: Call) -> Sequence[Domain]:
    type_, attrs = call.args[0].checked_type, call.attrs
    device: int = attrs.device_type  # type: ignore[union-attr]
    fixed = ", is_fixed=True" if attrs.is_fixed else ""  # type: ignore[union-attr]
    cause = f"on_device({describe(call.args[0])}, device_type={device}{fixed})"
    argument = domain_of(type_, device, cause)
    return argument, argument if fixed else domain_of(type_)


def _of_device_copy(call: Call) -> Sequence[Domain]:
    type_, attrs = call.args[0].checked_type, call.attrs
    source: int = attrs.src_dev_type  # type: ignore[union-attr]
    target: int = attrs.dst_dev_type  # type: ignore[union-attr]
    cause = f"device_copy({describe(call.args[0])}, src_dev_type={source}, dst_dev_type={target})"
    return domain_of(type_, source, cause), domain_of(type_, target, cause)


_MARKS = {OnDevice.op: _of_on_device, DeviceCopy.op: _of_device_copy}


def _placed(call: Call, places: Sequence[Place]) -> Sequence[Domain]:
    """Return the domains of the arguments and result of an operator with the hook ``places``."""
    shared: dict[Place, Domain] = {}
    for place, expr in zip(places, [*call.args, call], strict=True):
        if place == HOST:  # shapes, sizes and offsets are numbers of the machine itself
            shared.setdefault(place, Domain(cpu().device_type, describe(call)))
        elif isinstance(place, int):
            name = call.op.name  # type: ignore[attr-defined]
            shared.setdefault(place, Domain(place, f"{name}(..., device_type={place})"))
        else:
            shared.setdefault(place, domain_of(expr.checked_type))
    return [shared[place] for place in places]


@dataclass
class DeviceDomains:
    """Domains of all expressions of a typed module."""

    mod: IRModule
    _domains: dict[RelayExpr, Domain] = field(default_factory=dict)
    _callees: dict[Call, Domain] = field(default_factory=dict)

    def of(self, expr: RelayExpr) -> Domain:
        """Return the domain of an expression; a global name has its function's."""
        if isinstance(expr, GlobalVar) and expr.name_hint in self.mod:
            expr = self.mod[expr.name_hint]
        known = self._domains.get(expr)
        if known is None:
            known = self._domains[expr] = domain_of(expr.checked_type)
        return find(known)

    def device(self, expr: RelayExpr) -> int:
        """Return the device of an expression, for a function that of its result; 0 while it is unknown."""
        return result_of(self.of(expr)).device

    def of_callee(self, call: Call) -> Domain:
        """Return the domain of a callee, which for operators, kernels and constructors is a new one at each call."""
        if not self._is_polymorphic(call.op):
            return self.of(call.op)
        if call not in self._callees:
            self._callees[call] = self._fresh_callee(call)
        return find(self._callees[call])

    def _is_polymorphic(self, callee: RelayExpr) -> bool:
        if isinstance(callee, GlobalVar) and callee.name_hint in self.mod:
            callee = self.mod[callee.name_hint]
            return not isinstance(callee, Function) or is_closed(callee)
        return isinstance(callee, Op | Constructor) or is_closed(callee)

    @staticmethod
    def _fresh_callee(call: Call) -> Domain:
        if isinstance(call.op, Op) and call.op in _MARKS:
            return Domain(parts=tuple(_MARKS[call.op](call)))
        if isinstance(call.op, Op) and call.op.has_attr("FPlaces"):
            return Domain(parts=tuple(_placed(call, call.op.get_attr("FPlaces")(call.attrs))))
        shared = Domain()
        return Domain(parts=(shared,) * (len(call.args) + 1))

    # ---- what each expression states ----
    def collect(self, func: Function) -> None:
        """Unify the domains in ``func`` and its expressions."""
        for expr in post_order(func, open_children):
            self._state(expr)

    def _same(self, expr: RelayExpr, domain: Domain, where: RelayExpr) -> None:
        if not isinstance(expr, Constant) and not _is_movable(expr):
            unify(self.of(expr), domain, where)

    def _state(self, expr: RelayExpr) -> None:
        match expr:
            case Call():
                *params, result = self.of_callee(expr).parts
                for arg, param in zip(expr.args, params, strict=True):
                    self._same(arg, param, arg)
                self._same(expr, result, expr)
            case Let():
                self._same(expr.value, self.of(expr.var), expr.var)
                self._same(expr.body, self.of(expr), expr)
            case Function() if not is_closed(expr):
                self._state_function(expr)
            case Tuple():
                self._all_same(expr.fields, expr)
            case TupleGetItem():
                self._all_same([expr.tuple_value], expr)
            case If():
                self._all_same([expr.cond, expr.true_branch, expr.false_branch], expr)
            case Match():
                variables = [v for clause in expr.clauses for v in pattern_vars(clause.lhs)]
                self._all_same([expr.data, *variables, *(clause.rhs for clause in expr.clauses)], expr)
            case RefCreate():
                self._all_same([expr.value], expr)
            case RefRead():
                self._all_same([expr.ref], expr)
            case RefWrite():
                self._all_same([expr.ref, expr.value], expr)

    def _all_same(self, parts: Sequence[RelayExpr], whole: RelayExpr) -> None:
        for part in parts:
            self._same(part, self.of(whole), part)

    def _state_function(self, func: Function) -> None:
        *params, result = self.of(func).parts
        self._same(func.body, result, func.body)
        for var, domain in zip(func.params, params, strict=True):
            self._same(var, domain, var)
        if not RESULT_DEVICE_TYPE.has(func):
            return
        result_type = RESULT_DEVICE_TYPE.of(func)
        stated = domain_of(func.body.checked_type, result_type, "the function's result_device_type")
        unify(result, stated, func.body)
        for var, domain, device in zip(func.params, params, PARAM_DEVICE_TYPES.of(func), strict=True):
            cause = f"the function's param_device_types, for %{var.name_hint},"
            unify(domain, domain_of(var.checked_type, int(device), cause), var)

    # ---- defaults ----
    def set_defaults(self, func: Function, default: int) -> None:
        """Choose devices for domains in ``func`` that are still unknown.

        A function's result, and values that are not bound, are on ``default``; parameters are on the device of the
        result, and a variable bound by a let is on that of the let's result. Users of a value choose before it.
        """
        stack: list[RelayExpr] = [func]
        seen: set[RelayExpr] = set()
        while stack:
            expr = stack.pop()
            if expr in seen:
                continue
            seen.add(expr)
            match expr:
                case Function() if not is_closed(expr):
                    self._default_to(self.of(expr), default)
                case Call():
                    self._default_to(self.of_callee(expr), default)
                case Let():
                    self._default_to(self.of(expr.var), self.device(expr) or default)
            stack.extend(reversed(open_children(expr)))

    @staticmethod
    def _default_to(domain: Domain, default: int) -> None:
        result = result_of(domain)
        for leaf in leaves(domain):
            if leaf.free:
                leaf.device, leaf.cause = result.device or default, "default"
