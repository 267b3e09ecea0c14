"""Relay to text, byte for byte as TVM 0.8 prints it.

A dataflow graph is printed in the order of evaluation; an expression that cannot be nested in another gets a number::

    def @main(%x: Tensor[(1, 4), float32]) -> Tensor[(1, 4), float32] {
      %0 = add(%x, 1f /* ty=float32 */) /* ty=Tensor[(1, 4), float32] */;
      multiply(%0, %0) /* ty=Tensor[(1, 4), float32] */
    }

Before a call are first the arguments of all its arguments, then its arguments, each in order. Variables,
operators, constructors, global names and constants are printed in place; so are the result of a body and the value of a
let with no other uses. Everything else becomes ``%n = ...;`` in the innermost scope that is open when it
is first needed. Scopes are function bodies, branches, clauses, and the rest after a let. Numbers and variable names
are unique in the whole text, so ``%x`` in a second function is ``%x1``.

The text differs from TVM's only where that could not be parsed again: floats keep all their digits, and a name that is
no identifier is quoted (``%"input.1"``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import trampoline
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import BaseFunc, GlobalVar, RelayExpr
from tilewright.ir.json import save_json, type_key_of
from tilewright.ir.module import IRModule
from tilewright.ir.node import register_printer
from tilewright.ir.op import Op
from tilewright.ir.trampoline import Steps
from tilewright.ir.type import Type
from tilewright.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
)
from tilewright.relay.expr import (
    Call,
    Constant,
    Expr,
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
from tilewright.relay.text.types import (
    LITERAL_SUFFIX,
    MetaTable,
    attribute_value,
    comma_separated,
    quote,
    scalar_literal,
    type_steps,
    type_text,
)
from tilewright.relay.visitor import direct_children

VERSION = '#[version = "0.0.5"]\n'

_OMITTED = (
    "/* For debugging purposes the metadata section has been omitted.\n"
    " * If you would like to see the full metadata section you can set the \n"
    " * option to `True` when invoking `astext`. \n"
    " */"
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_IN_PLACE = (GlobalVar, Constant, Op, Var, Constructor)

Annotate = Callable[[Any], str]


# Marks of deeper and shallower lines while a text is put together; string literals hold no such characters.
_IN, _OUT = "\x0e", "\x0f"
_MARKS = re.compile(r"([\n\x0e\x0f])")


def _indented(text: str) -> str:
    return f"{_IN}{text}{_OUT}"


def _lay_out(text: str) -> str:
    """Replace the marks by blanks after each line break."""
    depth = 0
    pieces = []
    for piece in _MARKS.split(text):
        if piece == _IN:
            depth += 1
        elif piece == _OUT:
            depth -= 1
        else:
            pieces.append("\n" + "  " * depth if piece == "\n" else piece)
    return "".join(pieces)


def _count_uses(root: RelayExpr) -> dict[RelayExpr, int]:
    """Return how many times each expression below ``root`` is a part of another."""
    uses: dict[RelayExpr, int] = {root: 0}
    stack = [root]
    while stack:
        for child in direct_children(stack.pop()):
            if child in uses:
                uses[child] += 1
            else:
                uses[child] = 1
                stack.append(child)
    return uses


class RelayPrinter:
    """Printer of one text: a module, or an expression. ``annotate`` replaces the ``/* ty=... */`` comments."""

    def __init__(self, show_meta_data: bool = False, annotate: Annotate | None = None) -> None:
        self.show_meta_data = show_meta_data
        self.annotate = annotate
        self.meta = MetaTable()
        self.memo: dict[RelayExpr, str] = {}
        self.prepared: dict[RelayExpr, tuple[str, list[str]]] = {}  # text, and the scope it belongs to
        self.names: dict[str, int] = {}
        self.numbered = 0
        self.uses: dict[RelayExpr, int] = {}
        self.scopes: list[list[str]] = []
        self.type_texts: dict[int, str] = {}

    def module(self, mod: IRModule) -> str:
        """Print type definitions, then functions."""
        parts = []
        for data in mod.type_definitions.values():
            parts.append(self.type(data) + "\n")
        for var, func in mod.functions.items():
            if isinstance(func, Function):
                self.uses = _count_uses(func)
                parts.append(_lay_out(trampoline.run(self._function(f"def {self._global(var)}", func))) + "\n")
            else:
                parts.append(f"{self._global(var)} = {str(func).rstrip()}\n")
        return "\n".join(parts)

    def expr(self, expr: RelayExpr) -> str:
        """Print an expression standing alone."""
        self.uses = _count_uses(expr)
        return _lay_out(trampoline.run(self._scope(expr)))

    def type(self, value: Type) -> str:
        """Print a type."""
        text = self.type_texts.get(id(value))
        if text is None:
            text = trampoline.run(type_steps(value, self.meta, self.show_meta_data))
            self.type_texts[id(value)] = text
        return text

    def metadata(self, note_omission: bool) -> str:
        """Return the metadata section, a note in its place, or nothing."""
        if not self.meta:
            return ""
        if self.show_meta_data:
            return "\n#[metadata]\n" + save_json(self.meta.nodes)
        return "\n" + _OMITTED if note_omission else ""

    # Expressions: each of these yields steps for the trampoline.

    def _expr(self, expr: RelayExpr, allow_in_place: bool = False, heads_scope: bool = False) -> Steps[str]:
        known = self.memo.get(expr)
        if known is not None:
            return known
        yield self._prepare(expr, heads_scope and self._in_place(expr, allow_in_place))
        return self._place(expr, allow_in_place)

    def _in_place(self, expr: RelayExpr, allowed: bool) -> bool:
        return isinstance(expr, _IN_PLACE) or (allowed and self.uses[expr] < 2)

    def _prepare(self, expr: RelayExpr, heads_scope: bool = False) -> Steps[None]:
        """Print what ``expr`` needs before it, and form its own text; a let in mid-scope has parentheses."""
        if expr in self.memo or expr in self.prepared:
            return
        if isinstance(expr, Let) and not heads_scope:
            text = "(" + _indented("\n" + (yield self._let(expr))) + "\n)"
        else:
            text = yield self._node(expr)
        if isinstance(expr, Var):  # its binder has not been printed, so it is free
            self.scopes[-1].append(f"free_var {text};\n")
        else:
            self.prepared[expr] = (text + self._comment(expr), self.scopes[-1])

    def _place(self, expr: RelayExpr, allow_in_place: bool = False) -> str:
        """Return the text of a prepared expression: its own, or a number that is bound to it here."""
        if expr not in self.memo:
            text, scope = self.prepared.pop(expr)
            if not self._in_place(expr, allow_in_place):
                name = f"%{self.numbered}"
                self.numbered += 1
                scope.append(f"{name} = {text};\n")
                text = name
            self.memo[expr] = text
        return self.memo[expr]

    def _comment(self, expr: RelayExpr) -> str:
        if self.annotate is not None:
            note = self.annotate(expr)
            return f" /* {note} */" if note else ""
        found = expr.checked_type_or_none if isinstance(expr, (Constant, Call)) else None
        return "" if found is None else f" /* ty={self.type(found)} */"

    def _scope(self, expr: RelayExpr) -> Steps[str]:
        self.scopes.append([])
        text = yield self._expr(expr, allow_in_place=True, heads_scope=True)
        return "".join(self.scopes.pop()) + text

    def _body(self, expr: RelayExpr) -> Steps[str]:
        return "{" + _indented("\n" + (yield self._scope(expr))) + "\n}"

    def _node(self, expr: RelayExpr) -> Steps[str]:
        match expr:
            case Call():
                return (yield self._call(expr))
            case Var():
                return self._declare(expr)
            case Op():
                return expr.name
            case GlobalVar():
                return self._global(expr)
            case Constant():
                return self._constant(expr)
            case Constructor():
                return expr.name_hint
            case Tuple():
                fields = yield self._list(expr.fields)
                return f"({comma_separated(fields, len(fields))})"
            case TupleGetItem():
                value = yield self._expr(expr.tuple_value)
                return f"({value}).{expr.index}" if value[0] in "-0123456789" else f"{value}.{expr.index}"
            case Function():
                return (yield self._function("fn ", expr))
            case Let():
                return (yield self._let(expr))
            case If():
                cond = yield self._expr(expr.cond)
                then = yield self._body(expr.true_branch)
                return f"if ({cond}) {then} else {(yield self._body(expr.false_branch))}"
            case Match():
                return (yield self._match(expr))
            case RefCreate():
                return f"ref({(yield self._expr(expr.value))})"
            case RefRead():
                return f"ref_read({(yield self._expr(expr.ref))})"
            case RefWrite():
                return f"ref_write({', '.join((yield self._list((expr.ref, expr.value))))})"
            case BaseFunc():
                return str(expr)
            case _:
                fields = [f"{name}={value!r}" for name, value in expr.field_values() if name != "span"]
                return f"{type(expr).__name__}({', '.join(fields)})"

    def _list(self, exprs: Sequence[RelayExpr]) -> Steps[list[str]]:
        """Print arguments: first what each of them needs, then the arguments themselves get their numbers."""
        for expr in exprs:
            if expr not in self.memo:
                yield self._prepare(expr)
        return [self._place(expr) for expr in exprs]

    def _constant(self, expr: Constant) -> str:
        dtype = str(expr.data.dtype)
        if len(expr.data.shape) == 0 and dtype in LITERAL_SUFFIX:
            return scalar_literal(expr.data.numpy().item(), dtype)
        return self.meta.reference(expr)

    def _call(self, call: Call) -> Steps[str]:
        parts = yield self._list(call.args)
        parts += self._attributes(call.attrs, call.op)
        if isinstance(call.op, Constructor):
            arguments = f"({', '.join(parts)})" if call.op.inputs or parts else ""
            return call.op.name_hint + arguments
        return f"{(yield self._expr(call.op))}({', '.join(parts)})"

    def _attributes(self, attrs: Attrs | None, op: RelayExpr) -> list[str]:
        if attrs is None:
            return []
        declared = op.get_attr("OpDef").attrs_type if isinstance(op, Op) and op.has_attr("OpDef") else None
        if self.show_meta_data and isinstance(op, Op) and declared is not type(attrs):
            return [self.meta.reference(attrs)]
        parts = [f"{name}={self._value(value)}" for name, value in attrs.non_default()]
        if not isinstance(op, Op):
            parts.append(f"attrs_type_key={quote(type_key_of(attrs))}")
        return parts

    def _value(self, value: Any) -> str:
        return attribute_value(value, self.meta, self.show_meta_data)

    def _function(self, prefix: str, func: Function) -> Steps[str]:
        variables = f"[{', '.join(v.name_hint for v in func.type_params)}]" if func.type_params else ""
        params = [self._declare(p) for p in func.params]
        params += [f"{_attribute_name(k)}={self._value(v)}" for k, v in func.attrs.items()]
        returned = f"-> {self.type(func.ret_type)} " if func.ret_type is not None else ""
        return f"{prefix}{variables}({', '.join(params)}) {returned}{(yield self._body(func.body))}"

    def _let(self, let: Let) -> Steps[str]:
        """Print a chain of lets: the rest after each is its own scope, laid out one below the other."""
        done: list[str] = []
        opened = 0
        while True:
            declared = self._declare(let.var)
            value = yield self._expr(let.value, allow_in_place=True)
            if opened:
                done += self.scopes[-1]
            done.append(f"let {declared} = {value};\n")
            if opened:
                self.scopes.pop()
            body = let.body
            self.scopes.append([])
            opened = 1
            if not isinstance(body, Let) or body in self.memo or self.uses[body] > 1:
                break
            let = body
        text = yield self._expr(let.body, allow_in_place=True, heads_scope=True)
        done += self.scopes.pop()
        return "".join(done) + text

    def _match(self, match: Match) -> Steps[str]:
        data = yield self._expr(match.data)
        clauses = []
        for clause in match.clauses:
            pattern = yield self._pattern(clause.lhs)
            clauses.append(f"\n{pattern} => {(yield self._body(clause.rhs))},")
        return f"match{'' if match.complete else '?'} ({data}) {{{_indented(''.join(clauses))}\n}}"

    def _pattern(self, pattern: Pattern) -> Steps[str]:
        match pattern:
            case PatternVar():
                return self._declare(pattern.var)
            case PatternConstructor():
                inner = yield self._patterns(pattern.patterns)
                return pattern.constructor.name_hint + (f"({', '.join(inner)})" if inner else "")
            case PatternTuple():
                return f"({', '.join((yield self._patterns(pattern.patterns)))})"
            case _:
                return "_"

    def _patterns(self, patterns: Sequence[Pattern]) -> Steps[list[str]]:
        texts = []
        for pattern in patterns:
            texts.append((yield self._pattern(pattern)))
        return texts

    # Names

    def _global(self, var: GlobalVar) -> str:
        return f"@{var.name_hint if _IDENTIFIER.match(var.name_hint) else quote(var.name_hint)}"

    def _declare(self, var: Var) -> str:
        """Give the variable its name, and return it with its type."""
        if var in self.memo:  # bound twice: the program is malformed, but shows that it is
            self.memo[var] += "-malformed-ir"
            return self.memo[var]
        hint = var.name_hint
        if not hint or (not hint[0].isalpha() and _IDENTIFIER.match("v" + hint)):
            hint = "v" + hint
        name = self._unique(hint)
        self.memo[var] = "%" + (name if _IDENTIFIER.match(name) else quote(name))
        if var.type_annotation is None:
            return self.memo[var] + self._comment(var)
        return f"{self.memo[var]}: {self.type(var.type_annotation)}{self._comment(var)}"

    def _unique(self, prefix: str) -> str:
        name = prefix
        if prefix in self.names:
            while name in self.names:
                self.names[prefix] += 1
                name = f"{prefix}{self.names[prefix]}"
        self.names[name] = 0
        return name


def _attribute_name(name: str) -> str:
    return name if re.match(r"[A-Za-z_][A-Za-z0-9_.]*\Z", name) else quote(name)


def to_text(value: Any, version: bool = True, show_meta_data: bool = True, annotate: Annotate | None = None) -> str:
    """Return the text of a module, expression, function or type.

    ``version`` puts the version line first and, when the metadata is left out, a note in its place, as
    ``astext`` does; ``str`` has neither.
    """
    printer = RelayPrinter(show_meta_data, annotate)
    if isinstance(value, IRModule):
        text = printer.module(value)
    elif isinstance(value, Type):
        text = printer.type(value)
    elif isinstance(value, (Pattern, Clause)):
        text = pattern_text(value)
    else:
        text = printer.expr(value)
    return (VERSION if version else "") + text + printer.metadata(note_omission=version)


def pattern_text(value: Pattern | Clause) -> str:
    """Return the text of a pattern, or of a clause of a match."""
    printer = RelayPrinter()
    if isinstance(value, Pattern):
        return trampoline.run(printer._pattern(value))
    pattern = trampoline.run(printer._pattern(value.lhs))
    printer.uses = _count_uses(value.rhs)
    return _lay_out(f"{pattern} => {trampoline.run(printer._body(value.rhs))}")


def _plain_text(value: Any) -> str:
    return to_text(value, version=False, show_meta_data=False)


IRModule.to_text = staticmethod(to_text)
RelayExpr.to_text = staticmethod(to_text)
register_printer(Expr, _plain_text)
register_printer(GlobalVar, _plain_text)
register_printer(Type, type_text)
register_printer(Pattern, pattern_text)
register_printer(Clause, pattern_text)

__all__ = ["VERSION", "RelayPrinter", "to_text"]
