"""Flow of tensors through variables, tuples, branches and calls, without being computed anew.

For ``let %f = fn (%a, %b) { if (%c) { %f(%a, %join) } else { (%a, %b) } }; %f(%x, %y)``, ``%b`` may be ``%y`` or
``%join``, and the second field of the call's result may be ``%b``. The result of a kernel is a new tensor, never one of
its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tilewright.ir import walk
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.adt import Match
from tilewright.relay.expr import Call, Function, If, Let, RefCreate, RefWrite, Tuple, TupleGetItem, Var
from tilewright.relay.function_attributes import COMPILER
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.transform.common import open_children
from tilewright.relay.visitor import is_closed

Atom = tuple[RelayExpr, tuple[int, ...]]
"""A parameter of a function, or a field of one; a source; or a function as a value."""

Value = frozenset[Atom] | tuple["Value", ...]
"""What a tensor or a function may be; of a tuple, its fields."""

NOTHING: frozenset[Atom] = frozenset()


class TensorFlow:
    """The tensors (atoms) that each expression of a typed program may be.

    Parameters
    ----------
    mod : the program; closed functions are kernels
    sources : expressions that are atoms beside the parameters, with the expression that each of them extends
    """

    def __init__(self, mod: IRModule, sources: Mapping[RelayExpr, RelayExpr]) -> None:
        functions = {v.name_hint: f for v, f in mod.functions.items()}
        self.functions = {name: f for name, f in functions.items() if isinstance(f, Function) and not is_closed(f)}
        self.nodes: list[RelayExpr] = walk.post_order([*self.functions.values()], open_children)
        self.sources = sources
        self.values: dict[RelayExpr, Value] = {}
        self.incoming: dict[Atom, set[Atom]] = {}
        self.params = {p for node in self.nodes if isinstance(node, Function) for p in node.params}
        for param in self.params:
            self.values[param] = _own(param, (), param.checked_type)
        self._settle()
        self.outgoing: dict[Atom, set[Atom]] = {}
        for target, origins in self.incoming.items():
            for origin in origins:
                self.outgoing.setdefault(origin, set()).add(target)

    def atoms(self, expr: RelayExpr) -> frozenset[Atom]:
        """Return the tensors that an expression, or a field of it, may be."""
        return frozenset(_flat(self.values.get(expr, NOTHING)))

    def reach(self, atoms: Iterable[Atom], continued: bool = False) -> set[Atom]:
        """Return ``atoms`` and the parameters that they may become; if ``continued``, also the sources that extend
        them.
        """
        found: set[Atom] = set()
        stack = list(atoms)
        while stack:
            atom = stack.pop()
            if atom in found:
                continue
            found.add(atom)
            stack += self.outgoing.get(atom, ())
            if continued:
                stack += [(s, ()) for s, of in self.sources.items() if atom in self.atoms(of)]
        return found

    def callees(self, call: Call) -> list[Function] | None:
        """Return the functions that a call may be of; None where they are unknown."""
        atoms = self.atoms(call.op)
        found = [f for f, _ in atoms if isinstance(f, Function)]
        return found if found and len(found) == len(atoms) else None

    def out_of_sight(self, whole: Callable[[Call, RelayExpr], bool]) -> Iterator[Atom]:
        """Return the atoms that escape: into data types, references, functions as values, and operators and kernels
        that take them in other ways than as single tensors; arguments that are ``whole`` do not count.
        """
        hidden: list[RelayExpr] = []
        for node in self.nodes:
            if isinstance(node, Call):
                hidden += [a for a in self._hidden_args(node) if not whole(node, a)]
            elif isinstance(node, (Match, RefCreate, RefWrite)):
                hidden.append(node.data if isinstance(node, Match) else node.value)
        passed = [a for node in self.nodes for a in self._given_on(node)]
        values = {f for expr in passed for f, _ in self.atoms(expr) if isinstance(f, Function)}
        hidden += [f.body for f in values]
        return (atom for expr in hidden for atom in self.atoms(expr))

    def _hidden_args(self, call: Call) -> Sequence[RelayExpr]:
        op = call.op
        if isinstance(op, Op) and (op.get_attr("TNonComputational") or _reads_flat(op)):
            return call.args
        if isinstance(op, Op) or (is_closed(op) and not COMPILER.on(op)):
            return [a for a in call.args if isinstance(self.values.get(a, NOTHING), tuple)]
        return call.args if self.callees(call) is None else ()

    def _given_on(self, node: RelayExpr) -> Sequence[RelayExpr]:
        """Return whether a function is used as a value, not only called."""
        if isinstance(node, Call):
            return node.args
        if isinstance(node, Tuple):
            return node.fields
        return [node.value] if isinstance(node, (RefCreate, RefWrite)) else ()

    # ---- working it out ----

    def _settle(self) -> None:
        changed = True
        while changed:
            changed = False
            for node in self.nodes:
                changed |= self._enter(node)

    def _enter(self, node: RelayExpr) -> bool:
        """Compute a node from its parts; return whether it changed."""
        changed = False
        if isinstance(node, Let):
            changed = self._set(node.var, self._of(node.value))
        if isinstance(node, Call):
            changed = self._pass_arguments(node)
        return self._set(node, self._value(node)) or changed

    def _value(self, node: RelayExpr) -> Value:
        if node in self.sources or (isinstance(node, Function) and not is_closed(node)):
            return frozenset({(node, ())})
        match node:
            case GlobalVar() if node.name_hint in self.functions:
                return frozenset({(self.functions[node.name_hint], ())})
            case Tuple():
                return tuple(self._of(f) for f in node.fields)
            case TupleGetItem():
                value = self._of(node.tuple_value)
                return value[node.index] if isinstance(value, tuple) else NOTHING
            case Let():
                return self._of(node.body)
            case If():
                return _join(self._of(node.true_branch), self._of(node.false_branch))
            case Match():
                return _joined(self._of(clause.rhs) for clause in node.clauses)
            case Call():
                return _joined(self._of(f.body) for f in self.callees(node) or ())
        return self._of(node)

    def _of(self, expr: RelayExpr) -> Value:
        return self.values.get(expr, NOTHING)

    def _set(self, expr: RelayExpr, value: Value) -> bool:
        old = self._of(expr)
        self.values[expr] = new = _join(old, value)
        return new != old

    def _pass_arguments(self, call: Call) -> bool:
        changed = False
        for callee in self.callees(call) or ():
            for param, arg in zip(callee.params, call.args, strict=True):
                changed |= self._pass(_own(param, (), param.checked_type), self._of(arg))
        return changed

    def _pass(self, to: Value, value: Value) -> bool:
        if isinstance(to, tuple) or isinstance(value, tuple):
            pairs = zip(to, value, strict=True) if isinstance(to, tuple) and isinstance(value, tuple) else ()
            return any([self._pass(a, b) for a, b in pairs])
        changed = False
        for atom in to:
            known = self.incoming.setdefault(atom, set())
            changed |= not known >= value
            known |= value
        return changed


def _own(param: RelayExpr, path: tuple[int, ...], type_: Type) -> Value:
    if isinstance(type_, TupleType):
        return tuple(_own(param, (*path, i), t) for i, t in enumerate(type_.fields))
    return frozenset({(param, path)}) if isinstance(param, Var) and isinstance(type_, TensorType) else NOTHING


def _join(a: Value, b: Value) -> Value:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(_join(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, tuple) or isinstance(b, tuple):
        return a if isinstance(a, tuple) else b
    return a | b


def _joined(values: Iterable[Value]) -> Value:
    result: Value = NOTHING
    for value in values:
        result = _join(result, value)
    return result


def _flat(value: Value) -> Iterator[Atom]:
    if isinstance(value, tuple):
        for field in value:
            yield from _flat(field)
    else:
        yield from value


def _reads_flat(op: Op) -> bool:
    """Return whether an operator's kernel may be hand-written loops over memory (scans, sorts), which ignore
    strides.
    """
    opaque = op.get_attr("TOpPattern", OpPattern.OPAQUE) == OpPattern.OPAQUE
    return opaque and not (op.has_attr("FToStatic") or op.get_attr("TReadsShape") or op.get_attr("TReshapeOp"))
