"""AnnotateTarget: mark the operators that external compilers take.

Before::

    nn.softmax(nn.relu(%x))

after, for a compiler ``my`` that takes nn.relu::

    %0 = annotation.compiler_begin(%x, compiler="my");
    %1 = nn.relu(%0);
    %2 = annotation.compiler_end(%1, compiler="my");
    %3 = annotation.compiler_begin(%2, compiler="default");
    %4 = nn.softmax(%3);
    annotation.compiler_end(%4, compiler="default")

A compiler takes a call for which ``target.my`` of the operator is true, and a composite function by its name
(``Composite="my.conv_relu"``).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from tilewright.ir.errors import did_you_mean
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import (
    Call,
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
from tilewright.relay.function_attributes import COMPOSITE
from tilewright.relay.op.annotation.marks import CompilerBegin, CompilerEnd, compiler_begin, compiler_end
from tilewright.relay.op.contrib.register import COMPILERS, answer_of, get_pattern_table, load_compiler
from tilewright.relay.transform.common import call_of, typed_function_pass
from tilewright.relay.visitor import ExprMutator, direct_children, is_closed, post_order

DEFAULT = "default"
BEGIN, END = CompilerBegin.op, CompilerEnd.op


def compiler_of(mark: Call) -> str:
    """Return the compiler that a mark names."""
    return str(mark.attrs["compiler"])  # type: ignore[index]


def takes_operator(compiler: str, call: Call) -> object:
    """Return the answer of the operator's ``target.COMPILER`` for the call (see ``answer_of``); None where there is
    no rule.
    """
    assert isinstance(call.op, Op)
    rule = call.op.get_attr(f"target.{compiler}")
    return None if rule is None else answer_of(rule, call, 1, f"the rule target.{compiler} of {call.op.name}")


def composite_compiler(func: RelayExpr) -> str | None:
    """Return the compiler of a composite function, the prefix of its name."""
    name = COMPOSITE.get(func, "") if isinstance(func, Function) else ""
    return name.partition(".")[0] if "." in name else None


class _Annotator(ExprMutator):
    """Annotator of all nodes: tuples and the like get the compiler of their operands, or else the default."""

    def __init__(self, compilers: Sequence[str]) -> None:
        super().__init__()
        self.compilers = compilers
        self.compiler_of: dict[RelayExpr, str] = {}  # of the nodes that this made

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Skip composite functions, and functions that already have a compiler."""
        return () if is_closed(expr) or (isinstance(expr, Function) and COMPOSITE.has(expr)) else direct_children(expr)

    def _choose(self, call: Call) -> str:
        """Return the first of the compilers that takes the callee."""
        if isinstance(call.op, Op):
            return next((c for c in self.compilers if takes_operator(c, call)), DEFAULT)
        composite = composite_compiler(call.op)
        return composite if composite is not None and composite in self.compilers else DEFAULT

    def _begun(self, args: Sequence[RelayExpr], compiler: str | None = None) -> tuple[list[RelayExpr], str]:
        """End ``args`` in their own regions, and begin them for ``compiler``, by default the one they all come
        from.
        """
        sources: list[str] = []
        ended: list[tuple[RelayExpr, bool]] = []
        for arg in args:
            source = DEFAULT
            if begin := call_of(arg, BEGIN):  # from a run before this one
                if end := call_of(begin.args[0], END):
                    source = compiler_of(end)
                kept = compiler_of(begin) != DEFAULT
                ended.append((arg if kept else begin.args[0], kept))
            elif arg in self.compiler_of:
                source = self.compiler_of[arg]
                without_inputs = isinstance(arg, Call) and not arg.args
                ended.append((arg if without_inputs else compiler_end(arg, source), False))
            else:
                ended.append((arg, False))
            sources.append(source)
        if compiler is None:
            compiler = sources[0] if len(set(sources)) == 1 else DEFAULT
        return [arg if begun else compiler_begin(arg, compiler) for arg, begun in ended], compiler

    def _ended(self, expr: RelayExpr) -> RelayExpr:
        """Return ``expr`` with an end mark if it is one of the marked nodes and has inputs."""
        if expr not in self.compiler_of:
            return expr
        inputs = expr.args if isinstance(expr, Call) else direct_children(expr)
        return compiler_end(expr, self.compiler_of[expr]) if inputs else expr

    def _made(self, expr: RelayExpr, compiler: str) -> RelayExpr:
        self.compiler_of[expr] = compiler
        return expr

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        assert isinstance(post, Call)
        if call_of(expr, BEGIN):
            return post
        if call_of(expr, END):
            chosen = self.compiler_of.setdefault(post.args[0], compiler_of(post))
            return compiler_end(post.args[0], chosen) if compiler_of(post) == DEFAULT != chosen else post
        first = call_of(expr.args[0], BEGIN) if expr.args else None
        if first and compiler_of(first) != DEFAULT:
            return post
        if isinstance(expr.op, Var):
            return self.annotate_call_of_variable(post)
        args, compiler = self._begun(post.args, self._choose(expr))
        return self._made(Call(post.op, args, post.attrs, post.type_args, post.span), compiler)

    def annotate_call_of_variable(self, call: Call) -> RelayExpr:
        """Annotate a call of an unknown function."""
        args, compiler = self._begun(call.args, DEFAULT)
        return self._made(Call(call.op, args, call.attrs, call.type_args, call.span), compiler)

    def visit_tuple(self, expr: Tuple) -> RelayExpr:
        post = super().visit_tuple(expr)
        assert isinstance(post, Tuple)
        fields, compiler = self._begun(post.fields)
        return self._made(Tuple(fields, post.span), compiler)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        (value,), compiler = self._begun([self.visit(expr.tuple_value)])
        return self._made(TupleGetItem(value, expr.index, expr.span), compiler)

    def visit_ref_create(self, expr: RefCreate) -> RelayExpr:
        (value,), compiler = self._begun([self.visit(expr.value)])
        return self._made(RefCreate(value, expr.span), compiler)

    def visit_ref_read(self, expr: RefRead) -> RelayExpr:
        (ref,), compiler = self._begun([self.visit(expr.ref)])
        return self._made(RefRead(ref, expr.span), compiler)

    def visit_ref_write(self, expr: RefWrite) -> RelayExpr:
        (ref, value), compiler = self._begun([self.visit(expr.ref), self.visit(expr.value)])
        return self._made(RefWrite(ref, value, expr.span), compiler)

    def visit_if(self, expr: If) -> RelayExpr:
        cond, then, other = (self._ended(self.visit(e)) for e in (expr.cond, expr.true_branch, expr.false_branch))
        return If(cond, then, other, expr.span)

    def visit_let(self, expr: Let) -> RelayExpr:
        value = self.visit(expr.value)
        if not isinstance(value, Function):
            (value,), _ = self._begun([value])
        return Let(expr.var, value, self._ended(self.visit(expr.body)), expr.span)

    def visit_function(self, expr: Function) -> RelayExpr:
        if not self.children(expr):
            return expr
        return expr.replace(body=self._ended(self.visit(expr.body)))


class _CallAnnotator(_Annotator):
    """Annotator of calls alone; the nodes between them stay unmarked."""

    def annotate_call_of_variable(self, call: Call) -> RelayExpr:
        return Call(call.op, [self._ended(arg) for arg in call.args], call.attrs, call.type_args, call.span)

    def visit_tuple(self, expr: Tuple) -> RelayExpr:
        return Tuple([self._ended(self.visit(f)) for f in expr.fields], expr.span)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        return TupleGetItem(self._ended(self.visit(expr.tuple_value)), expr.index, expr.span)

    def visit_ref_create(self, expr: RefCreate) -> RelayExpr:
        return RefCreate(self._ended(self.visit(expr.value)), expr.span)

    def visit_ref_read(self, expr: RefRead) -> RelayExpr:
        return RefRead(self._ended(self.visit(expr.ref)), expr.span)

    def visit_ref_write(self, expr: RefWrite) -> RelayExpr:
        return RefWrite(self._ended(self.visit(expr.ref)), self._ended(self.visit(expr.value)), expr.span)


def AnnotateTarget(targets: str | Sequence[str], include_non_call_ops: bool = True) -> Pass:
    """Mark the operators that the compilers ``targets`` take; the first that takes an operator has it.

    ``include_non_call_ops`` also marks tuples, projections and references, for the compiler of all their operands.
    Repeated runs keep earlier marks except those for the default.
    """
    compilers = [targets] if isinstance(targets, str) else [str(t) for t in targets]
    for compiler in compilers:
        load_compiler(compiler)
    annotator = _Annotator if include_non_call_ops else _CallAnnotator

    def annotate(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        _warn_of_unknown(compilers, func)
        return annotator(compilers).visit(func)

    return typed_function_pass(annotate, "AnnotateTarget")


def _warn_of_unknown(compilers: Sequence[str], func: Function) -> None:
    """Warn of a compiler without rules, patterns and composites, whose name may be misspelt."""
    composites = {composite_compiler(e) for e in post_order(func) if isinstance(e, Function)}
    for compiler in compilers:
        ruled = any(Op.get(name).get_attr(f"target.{compiler}") is not None for name in Op.list_op_names())
        if not ruled and compiler not in composites and get_pattern_table(compiler) is None:
            text = f"no operator has a rule target.{compiler}, and no pattern is registered for {compiler!r}"
            warnings.warn(
                f"{text}{did_you_mean(compiler, COMPILERS)}: AnnotateTarget marks nothing for it", stacklevel=2
            )
