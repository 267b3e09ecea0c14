"""ForEachDevice: passes that run on one device's part of a planned program at a time, for that device's target.

Before (``PlanDevices``, and then no lets and no calls of Relay functions)::

    def @main(%x: Tensor[(5, 7), float32], param_device_types=[1], result_device_type=1) {
      %0 = exp(%x);
      %1 = device_copy(%0, src_dev_type=1, dst_dev_type=3);
      %2 = add(%1, 0f);
      %3 = device_copy(%2, src_dev_type=3, dst_dev_type=1);
      subtract(%3, %0)
    }

the passes get, under the targets of the devices 1, 3 and 1::

    def @main(%x: Tensor[(5, 7), float32], param_device_types=[1], result_device_type=1) { exp(%x) }
    def @main(%v0: Tensor[(5, 7), float32], param_device_types=[3], result_device_type=3) { add(%v0, 0f) }
    def @main(%v0: ..., %v1: ..., param_device_types=[1, 1], result_device_type=1) { subtract(%v0, %v1) }

and what they make of these is put together again, after SimplifyExpr for instance::

    def @main(%x: Tensor[(5, 7), float32], param_device_types=[1], result_device_type=1) {
      %0 = exp(%x);
      subtract(%0, %0)
    }

A part is all calls on one device that as many copies in a row lead to: what a part computes never goes through another
device back into it. So no pass sees a device that is not its own, and none needs to know of devices: what is folded,
laid out or fused stays on one. Primitive functions that the passes make carry their target as the attribute ``target``
and, when the target's kind is for another device, the device as ``device_type``.
Copies that are to no purpose (of constants, and there and back) go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo, Sequential
from tilewright.ir.type import TupleType, Type
from tilewright.relay.analysis import data_operands, device_types
from tilewright.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from tilewright.relay.function_attributes import DEVICE_TYPE, PARAM_DEVICE_TYPES, RESULT_DEVICE_TYPE, TARGET
from tilewright.relay.op.annotation.devices import DeviceCopy, DeviceCopyAttrs, OnDevice
from tilewright.relay.transform.common import TypedMutator, call_of, map_primitives, open_children
from tilewright.relay.transform.devices.device_domains import device_name
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import is_closed, post_order
from tilewright.target.target import Target


def field_of(value: RelayExpr, index: int) -> RelayExpr:
    """Return a field of a typed tuple, without a projection where the tuple is written out."""
    if isinstance(value, Tuple):
        return value.fields[index]
    type_ = value.checked_type
    assert isinstance(type_, TupleType)
    return TupleGetItem(value, index).with_checked_type(type_.fields[index])


class PlainCopies(TypedMutator):
    """Remove marks, and all copies but one for each tensor and destination."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[tuple[RelayExpr, int], RelayExpr] = {}

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        value = self.visit(expr.tuple_value)
        return value.fields[expr.index] if isinstance(value, Tuple) else super().visit_tuple_getitem(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        if call_of(expr, OnDevice.op):
            return self.visit(expr.args[0])
        if call_of(expr, DeviceCopy.op):
            return self._copy(self.visit(expr.args[0]), expr)
        return super().visit_call(expr)

    def _copy(self, value: RelayExpr, call: Call) -> RelayExpr:
        attrs = call.attrs
        assert isinstance(attrs, DeviceCopyAttrs)
        if isinstance(type_ := value.checked_type, TupleType):
            return Tuple([self._copy(field_of(value, i), call) for i in range(len(type_.fields))])
        before = call_of(value, DeviceCopy.op)
        if before and before.attrs.src_dev_type == attrs.dst_dev_type:  # type: ignore[union-attr]
            return before.args[0]
        if isinstance(value, Constant) or attrs.src_dev_type == attrs.dst_dev_type:
            return value
        key = value, attrs.dst_dev_type
        if key not in self.copies:
            self.copies[key] = Call(call.op, [value], attrs, span=call.span).with_checked_type(type_)
        return self.copies[key]


@dataclass(eq=False)
class _Part:
    """The calls of one part: the new form of each, and the parameters for values from outside."""

    device: int
    inside: dict[RelayExpr, RelayExpr] = field(default_factory=dict)
    params: dict[RelayExpr, Var] = field(default_factory=dict)
    results: dict[RelayExpr, int] = field(default_factory=dict)
    function: Function | None = None

    def param(self, value: RelayExpr) -> RelayExpr:
        """Return the parameter for a value from outside; for a tuple, one for each field."""
        type_ = value.checked_type
        if isinstance(type_, TupleType):
            fields = [self.operand(field_of(value, i)) for i in range(len(type_.fields))]
            return Tuple(fields).with_checked_type(type_)
        if value not in self.params:
            name = value.name_hint if isinstance(value, Var) else f"v{len(self.params)}"
            self.params[value] = Var(name, type_).with_checked_type(type_)
        return self.params[value]

    def operand(self, value: RelayExpr) -> RelayExpr:
        """Return a value in the form that the part's calls take."""
        for expr in post_order(value, self._tuples):
            if expr not in self.inside:
                self.inside[expr] = self._written(expr)
        return self.inside[value]

    def _tuples(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Return the transparent parts of a value: tuples that are written out, and fields of the part's own
        results.
        """
        if expr in self.inside or (isinstance(expr, TupleGetItem) and _origin(expr) not in self.inside):
            return ()
        return data_operands(expr) if isinstance(expr, Tuple | TupleGetItem) else ()

    def _written(self, expr: RelayExpr) -> RelayExpr:
        match expr:
            case Constant():
                return Constant(expr.data, expr.span).with_checked_type(expr.checked_type)  # one of the part's own
            case Tuple():
                fields = [self.inside[f] for f in expr.fields]
                return Tuple(fields, expr.span).with_checked_type(expr.checked_type)
            case TupleGetItem() if expr.tuple_value in self.inside:
                return field_of(self.inside[expr.tuple_value], expr.index)
        return self.param(expr)

    def close(self) -> Function:
        """Return the part as a function of its parameters; several results are a tuple."""
        values = [self.inside[call] for call in self.results]
        types: list[Type] = [v.checked_type for v in values]
        body = values[0] if len(values) == 1 else Tuple(values).with_checked_type(TupleType(types))
        devices = {PARAM_DEVICE_TYPES.key: [self.device] * len(self.params), RESULT_DEVICE_TYPE.key: self.device}
        return Function(list(self.params.values()), body, body.checked_type, attrs=devices)


def _origin(expr: RelayExpr) -> RelayExpr:
    """Return the expression that a field is taken from."""
    while isinstance(expr, TupleGetItem):
        expr = expr.tuple_value
    return expr


def _split(main: Function) -> dict[RelayExpr, _Part]:
    """Return the part of each call of a planned function except copies."""
    devices = device_types(main)
    levels: dict[RelayExpr, int] = {}
    parts: dict[tuple[int, int], _Part] = {}
    found: dict[RelayExpr, _Part] = {}
    for expr in post_order(main.body, data_operands):
        copy = call_of(expr, DeviceCopy.op)
        levels[expr] = max((levels[e] for e in data_operands(expr)), default=0) + bool(copy)
        if isinstance(expr, Call) and not copy:
            part = parts.setdefault((levels[expr], devices[expr]), _Part(devices[expr]))
            args = [part.operand(arg) for arg in expr.args]
            call = Call(expr.op, args, expr.attrs, expr.type_args, expr.span)
            part.inside[expr] = call.with_checked_type(expr.checked_type)
            found[expr] = part
    return found


class _Joiner(TypedMutator):
    """Rebuild the body from the transformed parts."""

    def __init__(self, parts: Mapping[RelayExpr, _Part]) -> None:
        super().__init__()
        self.parts = parts
        self._bodies: dict[_Part, RelayExpr] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Visit the inputs of a call's part."""
        return tuple(self.parts[expr].params) if expr in self.parts else data_operands(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        part = self.parts.get(expr)
        if part is None:
            return Call(expr.op, [self.visit(a) for a in expr.args], expr.attrs, expr.type_args, expr.span)
        if part not in self._bodies:
            func = part.function
            assert func is not None
            values = [self.visit(value) for value in part.params]
            self._bodies[part] = _Substitute(dict(zip(func.params, values, strict=True))).visit(func.body)
        body = self._bodies[part]
        return body if len(part.results) == 1 else _projected(body, part.results[expr])


class _Substitute(TypedMutator):
    """Replace variables by values of their types; every expression keeps its type."""

    def __init__(self, values: Mapping[Var, RelayExpr]) -> None:
        super().__init__()
        self.memo_map.update(values.items())


def _projected(value: RelayExpr, index: int) -> RelayExpr:
    return value.fields[index] if isinstance(value, Tuple) else TupleGetItem(value, index)


def _outward(parts: Mapping[RelayExpr, _Part], body: RelayExpr) -> None:
    """Record for each part which of its calls are used outside of it."""
    for expr in post_order(body, _Joiner(parts).children):
        if expr in parts:
            parts[expr].results.setdefault(expr, len(parts[expr].results))


def ForEachDevice(targets: Mapping[int, Target], passes: Sequence[Pass], name: str = "ForEachDevice") -> Pass:
    """Run passes on the parts of main that are on one device, each under ``with`` the device's target.

    Parameters
    ----------
    targets : the target of each device, by DLPack's type number
    passes : passes over data flow; they keep the parameters and the type of main

    Raises
    ------
    TilewrightError for an expression on a device without a target, and for a main that PlanDevices has not planned;
    UnsupportedError for one that is more than data flow.
    """

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        typed = infer_module(mod)
        main: Function = typed["main"]
        body = PlainCopies().visit(main.body)
        parts = _split(main.replace(body=body))
        _outward(parts, body)
        for part in dict.fromkeys(parts.values()):
            if not part.results:  # what only copies to no purpose used
                continue
            single = typed.copy()
            single["main"] = part.close()
            with target_of(targets, part.device):
                made = Sequential(passes, name=f"{name} on {device_name(part.device)}")(single)
            part.function = _with_target(infer_module(made)["main"], part.device, target_of(targets, part.device))
        result = typed.copy()
        result["main"] = main.replace(body=_Joiner(parts).visit(body))
        return infer_module(result)

    return ModulePass(run, PassInfo(0, name))


def device_marks(target: Target, device: int) -> dict[str, Any]:
    """Return the attributes of a primitive function that record its target and the device of its tensors."""
    return {TARGET.key: str(target)} | ({DEVICE_TYPE.key: device} if device != target.device_type else {})


def _with_target(func: Function, device: int, target: Target) -> Function:
    """Return ``func`` with the target recorded on its primitive functions."""
    marks = device_marks(target, device)
    result = map_primitives(func, lambda f: f if TARGET.has(f) else f.with_attr(marks))
    assert isinstance(result, Function)
    return result


def names_devices(mod: IRModule) -> bool:
    """Return whether a program says on which device parts of it run."""
    functions = [f for _, f in mod.items() if isinstance(f, Function) and not is_closed(f)]
    return any(RESULT_DEVICE_TYPE.has(f) for f in functions) or any(
        call_of(expr, OnDevice.op) or call_of(expr, DeviceCopy.op)
        for func in functions
        for expr in post_order(func, open_children)
    )


def device_of(func: Any, default: int) -> int:
    """Return the device of the tensors of a primitive function or kernel of a program for several devices."""
    if DEVICE_TYPE.has(func):
        return int(DEVICE_TYPE.of(func))
    return Target(TARGET.of(func)).device_type if TARGET.has(func) else default


def target_of(targets: Mapping[int, Target], device: int) -> Target:
    """Return the target of a device; raise TilewrightError where there is none."""
    if device not in targets:
        known = ", ".join(f"{device_name(d)}: {target}" for d, target in targets.items())
        raise TilewrightError(
            f"a part of the network is to run on {device_name(device)}, which has no target; give "
            f'relay.build one for each device, as in target={{"cpu": "llvm", ...}}; found: {known}'
        )
    return targets[device]
