"""AppendInPlace and MarkSlack: in-place append to tensors that a program takes and returns, or carries around a loop.

Before, where ``%past`` is a parameter of main, or of a function that calls itself with ``%1`` in its place::

    %0 = (%past, %new);                        // (1, 12, past, 64) and (1, 12, 1, 64)
    %1 = concatenate(%0, axis=2);
    %2 = nn.attention(%q, %1, %v);
    (%2, %1)

after AppendInPlace::

    %1 = vm.append(%past, %new, axis=2);
    %2 = nn.attention(%q, %1, %v);
    (%2, %1)

The virtual machine appends without copying ``%past`` where its memory has slack after it, as that of an earlier result
has (``native/src/vm/append.c``). Unless all dimensions before the axis are 1, tensors in such memory have the strides
of the whole. ``TensorFlow`` finds where they go; a concatenation whose result reaches code that assumes compact tensors
stays one, and the results of a loop are made compact before main returns them. After fusion, MarkSlack records in the
attribute ``room`` of each kernel which of its parameters may have strides, and code generation gives their buffers
strides; main records in ``takes_room`` which inputs may have them. A specialization gets main's inputs unchanged: only
inputs that all specializations append to may have strides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import TensorType, TupleType
from tilewright.relay.expr import Call, Function, Let, Tuple
from tilewright.relay.function_attributes import IS_SPECIALIZATION, RESULT_DEVICE_TYPE, SLACK, TAKES_SLACK
from tilewright.relay.op.tensor.unary import copy
from tilewright.relay.op.transform.join import Concatenate, concatenate
from tilewright.relay.op.vm import Append, append
from tilewright.relay.transform.common import TypedMutator, call_of, open_children
from tilewright.relay.transform.devices.for_each_device import field_of
from tilewright.relay.transform.memory.tensor_flow import Atom, TensorFlow
from tilewright.relay.type_infer import infer_expr, infer_module
from tilewright.relay.visitor import ExprMutator, is_closed, post_order
from tilewright.runtime.device import cpu
from tilewright.target.target import Target


@dataclass(frozen=True)
class _Join:
    """A concatenation: its first part, the axis, and whether the result is compact even in memory with slack."""

    past: RelayExpr
    axis: int
    compact: bool


_Joins = dict[RelayExpr, _Join]


def AppendInPlace() -> Pass:
    """Turn concatenations that extend a parameter of main, or of a loop, into ``vm.append``, on the CPU."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        target = Target.current()
        several = RESULT_DEVICE_TYPE.has(mod["main"])
        if (
            several
            or not isinstance(mod["main"], Function)
            or (target is not None and target.device_type != cpu().device_type)
        ):
            return mod
        mod = infer_module(mod)
        functions = [f for f in mod.functions.values() if isinstance(f, Function)]
        joins = {e: j for f in functions for e, j in _concatenations(f).items()}
        return _appended(mod, joins) if joins else mod

    return ModulePass(run, PassInfo(0, "AppendInPlace"))


def _concatenations(func: Function) -> _Joins:
    """Return the concatenations of a function that are candidates."""
    found = {}
    for node in () if is_closed(func) else post_order(func.body, open_children):
        call = call_of(node, Concatenate.op)
        if call is None or not isinstance(parts := call.args[0], Tuple) or len(parts.fields) < 2:
            continue
        type_, past = node.checked_type, parts.fields[0].checked_type
        assert isinstance(type_, TensorType) and isinstance(past, TensorType)
        axis = int(call.attrs.axis) % len(type_.shape)  # type: ignore[union-attr]
        unknown = not isinstance(past.shape[axis], IntImm) or IS_SPECIALIZATION.on(func)
        if unknown and dt.nbytes(type_.dtype) * 8 == dt.bits(type_.dtype):
            found[node] = _join_of(parts.fields[0], axis)
    return found


def _join_of(past: RelayExpr, axis: int) -> _Join:
    type_ = past.checked_type
    assert isinstance(type_, TensorType)
    return _Join(past, axis, all(isinstance(d, IntImm) and d.value == 1 for d in type_.shape[:axis]))


class _Appends:
    """The joins that append in place, and where tensors with strides go then."""

    def __init__(self, mod: IRModule, joins: _Joins) -> None:
        self.entries = _entries(mod)
        self.joins = joins
        self.flow = TensorFlow(mod, {expr: join.past for expr, join in joins.items()})
        self.results = {atom for entry in self.entries for atom in self.flow.atoms(entry.body)}
        self.inputs: list[Atom] = [(param, ()) for entry in self.entries for param in entry.params]
        self.becomes = {expr: self.flow.reach([(expr, ())], continued=True) for expr in joins}
        self.continued = {atom: self.flow.reach([atom], continued=True) for atom in self.inputs}

    def of_inputs(self, expr: RelayExpr) -> set[Atom]:
        """Return the inputs that a join extends, where main returns what becomes of it."""
        if self.results.isdisjoint(self.becomes[expr]):
            return set()
        return {atom for atom in self.inputs if (expr, ()) in self.continued[atom]}

    def continues(self, entry: Function, expr: RelayExpr) -> set[tuple[int, int]]:
        """Return the numbers of the inputs of ``entry`` that a join extends, with its axis."""
        atoms = self.of_inputs(expr)
        return {(i, self.joins[expr].axis) for i, param in enumerate(entry.params) if (param, ()) in atoms}

    def taken(self) -> tuple[int, ...]:
        """Return the numbers of the inputs that main and all of its specializations extend, along one axis."""
        found = [set().union(*(self.continues(entry, e) for e in self.joins)) for entry in self.entries]
        common = [i for i, _ in sorted(set.intersection(*found))]
        return tuple(i for i in common if all(sum(i == j for j, _ in pairs) == 1 for pairs in found))

    def in_loop(self, expr: RelayExpr) -> bool:
        """Return whether a join extends its own result of the previous iteration."""
        return not self.becomes[expr].isdisjoint(self.flow.atoms(self.joins[expr].past))

    def strides(self, chosen: Iterable[RelayExpr]) -> dict[Atom, set[int]]:
        """Return the axes along which parameters and joins may have slack, where their strides show it."""
        found: dict[Atom, set[int]] = {}
        for expr in chosen:
            if not self.joins[expr].compact:
                for atom in self._shown(expr):
                    found.setdefault(atom, set()).add(self.joins[expr].axis)
        return found

    def _shown(self, expr: RelayExpr) -> set[Atom]:
        return self.flow.reach([(expr, ()), *self.of_inputs(expr)])

    def fitting(self) -> list[RelayExpr]:
        """Return the joins to append in place: those whose strides reach only code that supports them."""
        main, *specializations = self.entries
        general = set().union(*(self.continues(main, e) for e in self.joins))
        useless = {e for entry in specializations for e in self.joins if self.continues(entry, e) - general}
        useless |= {e for e in self.joins if len(e.args[0].fields) > 2}  # type: ignore[attr-defined]  # no cache
        chosen = [e for e in self.joins if self.in_loop(e) or (self.of_inputs(e) and e not in useless)]
        strides = self.strides(chosen)
        bad = {atom for atom, axes in strides.items() if len(axes) > 1} | self._hidden(chosen)
        return [e for e in chosen if self.joins[e].compact or bad.isdisjoint(self._shown(e))]

    def _hidden(self, chosen: Sequence[RelayExpr]) -> set[Atom]:
        parts = {e: e.args[0] for e in chosen if isinstance(e, Call)}
        hidden = set(self.flow.out_of_sight(lambda call, arg: parts.get(call) is arg))
        for tuple_ in parts.values():
            assert isinstance(tuple_, Tuple)
            hidden |= {atom for part in tuple_.fields[1:] for atom in self.flow.atoms(part)}
        return hidden

    def own(self, chosen: Sequence[RelayExpr]) -> set[Atom]:
        """Return the tensors with strides that extend no input: main makes them compact."""
        return self.strides(e for e in chosen if not self.of_inputs(e)).keys() | set()


def _entries(mod: IRModule) -> list[Function]:
    """Return main and its specializations, which it calls with its own inputs."""
    functions = [f for f in mod.functions.values() if isinstance(f, Function)]
    main = mod["main"]
    assert isinstance(main, Function)
    return [main, *(f for f in functions if IS_SPECIALIZATION.on(f))]


def _appended(mod: IRModule, joins: _Joins) -> IRModule:
    appends = _Appends(mod, joins)
    while len(chosen := appends.fitting()) != len(appends.joins):
        appends = _Appends(mod, {expr: joins[expr] for expr in chosen})
    if not chosen:
        return mod
    appender = _Appender({expr: joins[expr].axis for expr in chosen})
    changed = mod.copy()
    for var, func in mod.functions.items():
        if isinstance(func, Function) and not is_closed(func):
            if func in appends.entries and (own := appends.own(chosen)):
                func = func.replace(body=_compact(func.body, appends.flow, own))
            changed[var] = appender.visit(func)
    return infer_module(changed)


def _compact(result: RelayExpr, flow: TensorFlow, own: set[Atom]) -> RelayExpr:
    """Return main's result without the strides of its loops."""
    if isinstance(result, Let):
        return Let(result.var, result.value, _compact(result.body, flow, own), result.span)
    if own.isdisjoint(flow.atoms(result)):
        return result
    if isinstance(type_ := result.checked_type, TupleType):
        return Tuple([_compact(field_of(result, i), flow, own) for i in range(len(type_.fields))])
    return copy(result)


class _Appender(TypedMutator):
    def __init__(self, axes: Mapping[RelayExpr, int]) -> None:
        super().__init__()
        self.axes = axes

    def visit_call(self, expr: Call) -> RelayExpr:
        if expr not in self.axes:
            return super().visit_call(expr)
        parts = expr.args[0]
        assert isinstance(parts, Tuple)
        past, *more = (self.visit(part) for part in parts.fields)
        tail = more[0] if len(more) == 1 else infer_expr(concatenate(more, self.axes[expr]))
        return append(past, tail, self.axes[expr])


def MarkSlack() -> Pass:
    """Record which parameters of fused functions, and of main, may be in memory with slack."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        joins: _Joins = {}
        for func in mod.functions.values():
            for node in post_order(func, open_children) if isinstance(func, Function) else ():
                if call := call_of(node, Append.op):
                    joins[node] = _join_of(call.args[0], int(call.attrs.axis))  # type: ignore[union-attr]
        if not joins:
            return mod
        appends = _Appends(mod, joins)
        marker = _Marker(appends.flow, appends.strides(joins))
        changed = mod.copy()
        for var, func in mod.functions.items():
            if isinstance(func, Function) and not is_closed(func):
                changed[var] = marker.visit(func)
        if taken := appends.taken():
            changed["main"] = changed["main"].with_attr(TAKES_SLACK.key, taken)
        return infer_module(changed)

    return ModulePass(run, PassInfo(0, "MarkSlack"))


class _Marker(ExprMutator):
    def __init__(self, flow: TensorFlow, strides: Mapping[Atom, set[int]]) -> None:
        super().__init__()
        self.flow = flow
        self.strides = strides

    def visit_function(self, expr: Function) -> RelayExpr:
        return expr if is_closed(expr) else super().visit_function(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        assert isinstance(post, Call)
        if not is_closed(post.op):
            return post
        assert isinstance(post.op, Function)
        slack = tuple((i, axis) for i, arg in enumerate(expr.args) for axis in sorted(self._axes(arg)))
        return post.replace(op=post.op.with_attr(SLACK.key, slack)) if slack else post

    def _axes(self, arg: RelayExpr) -> set[int]:
        return {axis for atom in self.flow.atoms(arg) for axis in self.strides.get(atom, ())}
