"""Analyses of Relay programs: variables, well-formedness, constants, dtypes, work, match cases, devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.ir import trampoline
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import BaseFunc, GlobalVar, RelayExpr
from tilewright.ir.load_on_use import load_on_use
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.trampoline import Steps
from tilewright.ir.type import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeConstraint,
    TypeKind,
    TypeRelation,
    TypeVar,
)
from tilewright.relay.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
    pattern_vars,
)
from tilewright.relay.annotated_regions import AnnotatedRegion, AnnotatedRegionSet
from tilewright.relay.call_graph import CallGraph
from tilewright.relay.expr import Call, Constant, Function, If, Let, RefCreate, Tuple, TupleGetItem, Var
from tilewright.relay.features import Feature, detect_feature
from tilewright.relay.function_attributes import PARAM_DEVICE_TYPES, RESULT_DEVICE_TYPE
from tilewright.relay.scopes import Scopes
from tilewright.relay.visitor import direct_children, post_order, post_order_visit


def _program(root: RelayExpr | IRModule) -> list[RelayExpr]:
    if isinstance(root, IRModule):
        return [f for f in root.functions.values() if isinstance(f, Function)]
    return [root]


def nodes(root: RelayExpr | IRModule) -> Iterator[RelayExpr]:
    """Yield every node once, parents first, in program order."""
    stack, seen = list(reversed(_program(root))), dict[RelayExpr, None]()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            yield node
            stack.extend(reversed(direct_children(node)))


def _binders(node: RelayExpr) -> Sequence[Var]:
    match node:
        case Function():
            return node.params
        case Let():
            return (node.var,)
        case Match():
            return [v for c in node.clauses for v in pattern_vars(c.lhs)]
    return ()


def all_vars(expr: RelayExpr) -> list[Var]:
    """Return every variable, bound or free, in the order of appearance."""
    return [n for n in nodes(expr) if isinstance(n, Var)]


def bound_vars(expr: RelayExpr) -> list[Var]:
    """Return the variables that the expression binds, in the order of appearance."""
    return list(dict.fromkeys(v for n in nodes(expr) for v in _binders(n)))


def free_vars(expr: RelayExpr) -> list[Var]:
    """Return the variables that the expression uses but does not bind, in the order of appearance."""
    bound = dict.fromkeys(bound_vars(expr))
    return [v for v in all_vars(expr) if v not in bound]


def check_basic_block_normal_form(expr: RelayExpr) -> bool:
    """Return True if each value that several function bodies or branches use is bound outside of them; raise
    otherwise.

    Raises:
        TilewrightError: a value is used in several scopes; ``ToBasicBlockNormalForm`` binds it.
    """
    bound = set(bound_vars(expr))
    atoms = (Constant, Constructor, GlobalVar, Op)
    loose = [e for e in Scopes(expr).crossing() if e not in bound and not isinstance(e, atoms)]
    if loose:
        what = ", ".join(sorted({f"%{e.name_hint}" if isinstance(e, Var) else f"a {type(e).__name__}" for e in loose}))
        raise TilewrightError(
            f"the program is not in basic block normal form: {what} is used in several scopes and bound in none; "
            "ToBasicBlockNormalForm binds it"
        )
    return True


def _type_parts(type_: Type) -> Sequence[Type]:
    match type_:
        case TupleType():
            return type_.fields
        case FuncType():
            return (*type_.arg_types, type_.ret_type, *type_.type_constraints)
        case RefType():
            return (type_.value,)
        case TypeCall():
            return (type_.func, *type_.args)
        case TypeRelation():
            return type_.args
    return ()


def _node_types(node: RelayExpr) -> Iterator[Type]:
    if isinstance(node, Var) and node.type_annotation is not None:
        yield node.type_annotation
    if isinstance(node, Function):
        yield from node.type_params
        if node.ret_type is not None:
            yield node.ret_type
    if isinstance(node, Call):
        yield from node.type_args


def _walk_types(root: RelayExpr | Type) -> Iterator[tuple[Type, bool]]:
    """Yield every type in annotations, and whether it is a type variable that is bound there."""
    if isinstance(root, Type):
        stack = [root]
    else:
        stack = [t for n in nodes(root) for t in _node_types(n)][::-1]
        for node in nodes(root):
            if isinstance(node, Function):
                for variable in node.type_params:
                    yield variable, True
    while stack:
        type_ = stack.pop()
        yield type_, False
        if isinstance(type_, FuncType):
            for variable in type_.type_params:
                yield variable, True
        stack.extend(reversed(_type_parts(type_)))


def all_type_vars(expr: RelayExpr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """Return every type variable, bound or free."""
    return list(dict.fromkeys(t for t, _ in _walk_types(expr) if isinstance(t, TypeVar)))


def bound_type_vars(expr: RelayExpr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """Return the type variables that functions and function types bind."""
    return list(dict.fromkeys(t for t, binds in _walk_types(expr) if binds and isinstance(t, TypeVar)))


def free_type_vars(expr: RelayExpr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """Return the type variables that are used but not bound."""
    bound = dict.fromkeys(bound_type_vars(expr))
    return [v for v in all_type_vars(expr) if v not in bound]


def well_formed_problems(root: RelayExpr | IRModule) -> list[str]:
    """Return the scoping problems of a program: variables bound twice, or used outside their scope."""
    problems: list[str] = []
    for expr in _program(root):
        bound: dict[Var, None] = {}
        free = {} if isinstance(root, IRModule) else dict.fromkeys(free_vars(expr))
        _check_scopes(expr, bound, free, problems)
    return problems


def _check_scopes(expr: RelayExpr, bound: dict[Var, None], free: dict[Var, None], problems: list[str]) -> None:
    in_scope: set[Var] = set()
    checked: set[RelayExpr] = set()

    def inside(names: Sequence[Var], *parts: RelayExpr) -> Steps[None]:
        for var in names:
            if var in bound:
                problems.append(f"the variable %{var.name_hint} is bound more than once")
            bound[var] = None
            in_scope.add(var)
        for part in parts:
            yield check(part)
        in_scope.difference_update(names)

    def check(node: RelayExpr) -> Steps[None]:
        if isinstance(node, Var):
            if node not in in_scope and node not in free:
                problems.append(f"the variable %{node.name_hint} is used outside its scope")
            return
        if node in checked:
            return
        checked.add(node)
        match node:
            case Function():
                yield inside(node.params, node.body)
            case Let(value=Function()):  # a local function may call itself
                yield inside((node.var,), node.value, node.body)
            case Let():
                yield check(node.value)
                yield inside((node.var,), node.body)
            case Match():
                yield check(node.data)
                for clause in node.clauses:
                    yield inside(pattern_vars(clause.lhs), clause.rhs)
            case _:
                for child in direct_children(node):
                    yield check(child)

    trampoline.run(check(expr))


def well_formed(expr: RelayExpr | IRModule) -> bool:
    """Return whether every variable is bound once and used only in its scope."""
    return not well_formed_problems(expr)


def check_well_formed(expr: RelayExpr | IRModule) -> None:
    """Raise TilewrightError with every scoping problem, if there is one."""
    problems = well_formed_problems(expr)
    if problems:
        raise TilewrightError("the program is not well-formed:\n" + "\n".join(f"  {p}" for p in problems))


def check_kind(t: Type, mod: IRModule | None = None) -> TypeKind:
    """Return the kind of a type; raise TilewrightError where the type is malformed."""
    match t:
        case TypeVar() | GlobalTypeVar() | IncompleteType():
            return t.kind
        case TypeData():
            return TypeKind.TypeData
        case TypeCall():
            if check_kind(t.func, mod) != TypeKind.AdtHandle:
                raise TilewrightError(f"{t.func} takes no type arguments: it is no algebraic data type")
            if mod is not None and isinstance(t.func, GlobalTypeVar):
                expected = len(mod[t.func].type_vars)
                if expected != len(t.args):
                    raise TilewrightError(f"{t.func} takes {expected} type arguments, got {len(t.args)}")
    for part in _type_parts(t):
        kind = check_kind(part, mod)
        apart = (isinstance(t, TypeCall) and part is t.func) or isinstance(part, TypeConstraint)
        if kind != TypeKind.Type and not apart and not (kind == TypeKind.AdtHandle and isinstance(part, GlobalTypeVar)):
            raise TilewrightError(f"{part} of kind {kind.name} stands where a type should be, in {t}")
    return TypeKind.Constraint if isinstance(t, TypeConstraint) else TypeKind.Type


def check_constant(expr: RelayExpr) -> bool:
    """Return whether the expression is a constant, or a tuple or operator call of constants alone."""
    return not any(isinstance(n, (Var, Function, If, Let, Match, RefCreate)) for n in nodes(expr)) and not isinstance(
        expr, Op
    )


def all_dtypes(expr: RelayExpr) -> set[str]:
    """Return the dtypes of all tensors in a typed expression."""
    found: dict[str, None] = {}
    for node in nodes(expr):
        stack = [node.checked_type_or_none]
        while stack:
            type_ = stack.pop()
            if isinstance(type_, TensorType):
                found[type_.dtype] = None
            elif type_ is not None:
                stack.extend(_type_parts(type_))
    return set(found)


def count_layers(expr: RelayExpr | IRModule, valid_ops: Sequence[str] = ("nn.conv2d", "nn.dense")) -> int:
    """Return the largest number of calls of ``valid_ops`` on a path from the inputs to the result, of ``main`` in a
    module.
    """
    root: RelayExpr = expr["main"] if isinstance(expr, IRModule) else expr
    depth: dict[RelayExpr, int] = {}
    names = frozenset(valid_ops)

    def visit(node: RelayExpr) -> None:
        below = max((depth[c] for c in direct_children(node)), default=0)
        depth[node] = below + (isinstance(node, Call) and isinstance(node.op, Op) and node.op.name in names)

    post_order_visit(root, visit)
    return depth[root]


def list_op_freqs(mod: RelayExpr | IRModule) -> dict[str, int]:
    """Return the number of calls of each operator by name, in the order of appearance."""
    freqs: dict[str, int] = {}
    for node in nodes(mod):
        if isinstance(node, Call) and isinstance(node.op, Op):
            freqs[node.op.name] = freqs.get(node.op.name, 0) + 1
    return freqs


def get_total_mac_number(expr: RelayExpr) -> int:
    """Return the number of multiply-accumulates in the convolutions and matrix products of a typed expression."""
    calls = [n for n in nodes(expr) if isinstance(n, Call) and isinstance(n.op, Op)]
    counts = [(call, call.op.get_attr("FMultiplyAdds")) for call in calls]  # type: ignore[attr-defined]
    return sum(multiply_adds(call) for call, multiply_adds in counts if multiply_adds is not None)


def unmatched_cases(match: Match, mod: IRModule | None = None) -> list[Pattern]:
    """Return patterns of values that no clause matches; empty when the match is complete.

    Starts from the wildcard and splits a candidate wherever a clause looks deeper, until each one is covered or not.
    """
    candidates: list[Pattern] = [PatternWildcard()]
    missing: list[Pattern] = []
    while candidates:
        candidate = candidates.pop(0)
        for clause in match.clauses:
            verdict = _covers(clause.lhs, candidate)
            if verdict is True:
                break
            if verdict is None:
                split = _expand(clause.lhs, candidate, mod)
                if split is not None:
                    candidates = split + candidates
                    break
        else:
            missing.append(candidate)
    return missing


def _covers(pattern: Pattern, candidate: Pattern) -> bool | None:
    """Return whether ``pattern`` matches every value of ``candidate``; None when it depends on the value."""
    if isinstance(pattern, (PatternWildcard, PatternVar)):
        return True
    if isinstance(candidate, PatternWildcard):
        return None
    if isinstance(pattern, PatternConstructor):
        if not isinstance(candidate, PatternConstructor):
            return False
        if pattern.constructor.name_hint != candidate.constructor.name_hint:
            return False
    assert isinstance(pattern, (PatternConstructor, PatternTuple))
    assert isinstance(candidate, (PatternConstructor, PatternTuple))
    verdicts = [_covers(p, c) for p, c in zip(pattern.patterns, candidate.patterns, strict=True)]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _expand(pattern: Pattern, candidate: Pattern, mod: IRModule | None) -> list[Pattern] | None:
    """Split ``candidate`` into patterns one step deeper, where ``pattern`` looks; None if it cannot be split."""
    if isinstance(pattern, (PatternWildcard, PatternVar)):
        return None
    if isinstance(candidate, PatternWildcard):
        if isinstance(pattern, PatternTuple):
            return [PatternTuple([PatternWildcard() for _ in pattern.patterns])]
        assert isinstance(pattern, PatternConstructor)
        if mod is None:
            return None
        header = pattern.constructor.belong_to.name_hint
        data = next((d for v, d in mod.type_definitions.items() if v.name_hint == header), None)
        if data is None:
            return None
        return [PatternConstructor(c, [PatternWildcard() for _ in c.inputs]) for c in data.constructors]
    assert isinstance(pattern, (PatternConstructor, PatternTuple))
    assert isinstance(candidate, (PatternConstructor, PatternTuple))
    for index, (p, c) in enumerate(zip(pattern.patterns, candidate.patterns, strict=True)):
        parts = _expand(p, c, mod)
        if parts is not None:
            before, after = candidate.patterns[:index], candidate.patterns[index + 1 :]
            return [candidate.replace(patterns=(*before, part, *after)) for part in parts]
    return None


def device_types(func: Function, default: int = 1) -> dict[RelayExpr, int]:
    """Return the device, by DLPack's type number, of each value of a typed and planned function that is data flow.

    The result is on the function's ``result_device_type``, or on ``default`` where it has none; the operands of an
    operator or kernel are on the device of its result, except those of ``device_copy``. This is the form after
    ``PlanDevices``, in which attributes and copies determine all devices. A constant that is used on several devices is
    on one of them.

    Raises:
        UnsupportedError: the function is more than data flow.
        TilewrightError: a value is used on two devices.
    """
    found: dict[RelayExpr, int] = {func.body: int(RESULT_DEVICE_TYPE.get(func, default))}
    for expr in reversed(post_order(func.body, data_operands)):
        device = found[expr]
        if isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name in ("on_device", "device_copy"):
            attrs: Any = expr.attrs
            device = attrs.device_type if expr.op.name == "on_device" else attrs.src_dev_type
        for operand in data_operands(expr):
            known = found.setdefault(operand, device)
            if known != device and not isinstance(operand, Constant):
                raise _on_two_devices(operand, known, device)
    for param, stated in zip(func.params, PARAM_DEVICE_TYPES.get(func, ()), strict=False):
        if found.setdefault(param, int(stated)) != int(stated):
            raise _on_two_devices(param, found[param], int(stated))
    return found


def data_operands(expr: RelayExpr) -> Sequence[RelayExpr]:
    """Return the operands of a value in a data-flow program; a callee is none.

    Raises:
        UnsupportedError: it is control flow, a closure or a data type.
    """
    match expr:
        case Call():
            return expr.args
        case Tuple():
            return expr.fields
        case TupleGetItem():
            return (expr.tuple_value,)
        case Var() | Constant():
            return ()
    raise UnsupportedError(
        f"a program on several devices is data flow: calls of operators and kernels, and tuples; found {_article(expr)}"
    )


def _article(expr: RelayExpr) -> str:
    name = type(expr).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name} expression"


def _on_two_devices(expr: RelayExpr, one: int, other: int) -> TilewrightError:
    return TilewrightError(
        f"a value is used on two devices, {one} and {other} (DLPack's type numbers), without a device_copy between "
        f"them; run relay.transform.PlanDevices first:\n{expr}"
    )


def _as_function(value: Any) -> BaseFunc:
    if isinstance(value, BaseFunc):
        return value
    if isinstance(value, RelayExpr):
        return Function(free_vars(value), value)
    raise TypeError(f"an IRModule holds functions and expressions, not a {type(value).__name__}")


IRModule.expr_to_function = staticmethod(_as_function)

__getattr__, __dir__ = load_on_use(
    __name__,
    names={
        "tilewright.relay.type_infer": ("TypeSolver", "_ffi_api"),
        "tilewright.relay.transform.fusion.extract_fused_functions": ("extract_fused_functions",),
        "tilewright.relay.backend.calibration": ("get_calibration_data",),
    },
)


__all__ = [
    "AnnotatedRegion", "AnnotatedRegionSet", "CallGraph", "Feature",
    "all_dtypes", "all_type_vars", "all_vars", "bound_type_vars", "bound_vars", "check_constant", "check_kind",
    "check_well_formed", "count_layers", "data_operands", "detect_feature", "device_types", "free_type_vars",
    "free_vars", "get_total_mac_number", "nodes", "post_order_visit", "unmatched_cases", "well_formed",
    "well_formed_problems",
]  # fmt: skip
