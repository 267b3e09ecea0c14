"""From the parse tree to nodes: resolves names, checks attributes, and records the span of each node.

Wrong names and attributes are collected; building continues with a placeholder, so that all are reported at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir import trampoline
from tilewright.ir.attrs import Attrs
from tilewright.ir.diagnostics import DiagnosticContext, SourceText
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.span import Span
from tilewright.ir.trampoline import Steps
from tilewright.ir.type import IncompleteType, TensorType
from tilewright.relay import adt
from tilewright.relay import expr as relay
from tilewright.relay.text.attributes import make_attributes, suggestion
from tilewright.relay.text.lexer import Token
from tilewright.relay.text.literals import (
    attribute_number,
    global_name,
    literal_number,
    local_name,
    unquote,
)
from tilewright.relay.text.type_builder import Node, TypeBuilder
from tilewright.runtime import ndarray as nd

# Infix operators, those that bind most tightly first.
_INFIX = (
    {"*": "multiply", "/": "divide"},
    {"+": "add", "-": "subtract"},
    {"<": "less", ">": "greater", "<=": "less_equal", ">=": "greater_equal"},
    {"==": "equal", "!=": "not_equal"},
)


class Builder(TypeBuilder):
    """Builder of one text into ``module``."""

    def __init__(
        self, source: SourceText, module: IRModule, meta: Mapping[str, Sequence[Any]], diagnostics: DiagnosticContext
    ) -> None:
        super().__init__(source, module, meta, diagnostics)
        self.scopes: list[dict[str, relay.Var]] = [{}]
        self.numbered: dict[str, RelayExpr] = {}
        self.globals = {var.name_hint: var for var in module.functions}
        self.constructors = {c.name_hint: c for d in module.type_definitions.values() for c in d.constructors}
        self.stand_ins: dict[int, relay.Var] = {}  # for unknown operators, already reported

    # Definitions

    def module_text(self, tree: Node) -> IRModule:
        """Add every definition of the text to the module."""
        functions = []
        for item in tree.children:
            if item.data == "type_def":
                self.type_definition(item)
            elif item.data == "extern_type":
                header = self.global_type_var(str(item.children[0]))
                with self.type_variables(item.children[1] if len(item.children) > 1 else None) as variables:
                    self.module.add_type(header, adt.TypeData(header, variables, [], self.span(item)))
            elif item.data == "function_def":
                functions.append(item)
        for item in functions:
            self.function_definition(item)
        return self.module

    def function_definition(self, tree: Node) -> None:
        """Build ``def @name(...) { ... }``."""
        name = global_name(tree.children[0])
        if name in self.defined:
            self.error(tree.children[0], f"function @{name} is defined twice")
        self.defined.add(name)
        function = trampoline.run(self.make_function(tree, tree.children[1:]))
        self.module[self.global_named(name)] = function

    def type_definition(self, tree: Node) -> None:
        """Build ``type Name[A] { Constructor(types), ... }``."""
        header = self.global_type_var(str(tree.children[0]))
        rest = tree.children[1:]
        with self.type_variables(rest[0] if rest and rest[0].data == "type_params" else None) as variables:
            constructors = []
            for i, item in enumerate(c for c in rest if c.data == "constructor"):
                inputs = [trampoline.run(self.type(t)) for t in item.children[1:]]
                name = str(item.children[0])
                constructors.append(
                    adt.Constructor(name, inputs, header, adt.constructor_tag(header.name_hint, i), self.span(item))
                )
                if name in self.constructors:
                    self.error(item, f"constructor {name} is defined twice")
                self.constructors[name] = constructors[-1]
        self.module.add_type(header, adt.TypeData(header, variables, constructors, self.span(tree)))

    def global_named(self, name: str) -> GlobalVar:
        """Return the unique GlobalVar of that name."""
        if name not in self.globals:
            self.globals[name] = GlobalVar(name)
        return self.globals[name]

    # Scopes

    def declare(self, tree: Node) -> Steps[relay.Var]:
        """Declare ``%x: type``; the type ``_`` is to be inferred."""
        annotation = (yield self.type(tree.children[1])) if len(tree.children) > 1 else None
        annotation = None if isinstance(annotation, IncompleteType) else annotation
        name = local_name(tree.children[0])
        var = relay.Var(name, annotation, self.span(tree))
        if isinstance(annotation, TensorType):
            var = var.with_checked_type(annotation)
        self.scopes[-1][name] = var
        return var

    def lookup(self, token: Token) -> RelayExpr:
        """Return the variable in scope; report an unknown one once."""
        name = local_name(token)
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        known = [n for scope in self.scopes for n in scope]
        self.error(token, f"variable {token} is not defined{suggestion(name, known)}")
        stand_in = self.scopes[0][name] = relay.Var(name)
        return stand_in

    # Expressions: steps for the trampoline

    def expression_text(self, tree: Node) -> RelayExpr:
        """Build the expression that is the whole text."""
        body = next(c for c in tree.children if c.data == "body")
        return trampoline.run(self.body(body))

    def block(self, tree: Node) -> Steps[RelayExpr]:
        """Build ``{ body }``, which has its own scope."""
        self.scopes.append({})
        result = yield self.body(tree.children[0])
        self.scopes.pop()
        return result

    def body(self, tree: Node) -> Steps[RelayExpr]:
        """Build bindings, then a result."""
        lets: list[tuple[relay.Var, RelayExpr, Span]] = []
        *statements, last = tree.children
        for item in statements:
            match item.data:
                case "let":
                    var = yield self.declare(item.children[0])
                    value = yield self.expr(item.children[1])
                    lets.append((var, value, self.span(item)))
                case "graph_binding":
                    self.numbered[str(item.children[0])] = yield self.expr(item.children[1])
                case "free_var":
                    yield self.declare(item.children[0])
                case _:
                    value = yield self.expr(item.children[0])
                    lets.append((relay.Var("_"), value, self.span(item)))
        result: RelayExpr = yield self.expr(last)
        for var, value, span in reversed(lets):
            result = relay.Let(var, value, result, span)
        return result

    def expr(self, tree: Node) -> Steps[RelayExpr]:
        """Build any expression."""
        child: Any = tree.children[0] if tree.children else None
        match tree.data:
            case "call":
                return (yield self.call(tree))
            case "local":
                return self.lookup(child)
            case "graph":
                return self.graph_value(child)
            case "global_var":
                return self.global_named(global_name(child))
            case "name":
                return self.named(tree)
            case "int_constant" | "float_constant":
                return self.number(tree)
            case "true_constant" | "false_constant":
                return relay.const(tree.data == "true_constant", "bool", self.span(tree))
            case "tuple":
                return relay.Tuple((yield self.exprs(tree.children)), self.span(tree))
            case "projection":
                value = yield self.expr(child)
                return relay.TupleGetItem(value, int(tree.children[1][1:]), self.span(tree))
            case "infix":
                return self.infix((yield self.exprs(tree.children[::2])), tree.children[1::2], self.span(tree))
            case "grouped":
                return (yield self.block(tree))
            case "function":
                return (yield self.make_function(tree, tree.children))
            case "if_else":
                cond = yield self.expr(child)
                then = yield self.block(tree.children[1])
                otherwise = yield self.block(tree.children[2])
                return relay.If(cond, then, otherwise, self.span(tree))
            case "match" | "match_partial":
                return (yield self.match(tree))
            case "ref_create":
                return relay.RefCreate((yield self.expr(child)), self.span(tree))
            case "ref_read":
                return relay.RefRead((yield self.expr(child)), self.span(tree))
            case "ref_write":
                ref, value = yield self.exprs(tree.children)
                return relay.RefWrite(ref, value, self.span(tree))
            case _:
                return self.meta_expr(tree)

    def exprs(self, trees: Sequence[Node]) -> Steps[list[RelayExpr]]:
        """Build several expressions, in order."""
        result = []
        for tree in trees:
            result.append((yield self.expr(tree)))
        return result

    def infix(self, operands: list[RelayExpr], operators: list[Token], span: Span) -> RelayExpr:
        """Build ``a + b * c < d``: operators of one level from left to right."""
        for level in _INFIX:
            folded, left = operands[:1], []
            for operator, operand in zip(operators, operands[1:], strict=True):
                name = level.get(str(operator))
                if name is None:
                    folded.append(operand)
                    left.append(operator)
                else:
                    folded[-1] = relay.Call(Op.get_or_register(name), [folded[-1], operand], span=span)
            operands, operators = folded, left
        return operands[0]

    def graph_value(self, token: Token) -> RelayExpr:
        """Return the expression bound to ``%12``."""
        found = self.numbered.get(str(token))
        if found is None:
            self.error(token, f"{token} is used before it is defined")
            found = self.numbered[str(token)] = relay.Var(f"v{token[1:]}")
        return found

    def named(self, tree: Node) -> RelayExpr:
        """Build an operator or constructor standing alone; a constructor without arguments is the value itself."""
        found = self.operator_or_constructor(tree.children[0])
        if isinstance(found, adt.Constructor) and not found.inputs:
            return relay.Call(found, (), span=self.span(tree))
        return found

    def operator_or_constructor(self, token: Token) -> RelayExpr:
        """Return the operator or constructor of a bare name."""
        name = str(token)
        if name in self.constructors:
            return self.constructors[name]
        if name in Op.registry:
            return Op.registry[name]
        known = [*Op.registry, *self.constructors]
        self.error(token, f"operator {name} is not known{suggestion(name, known)}")
        stand_in = relay.Var(name)
        self.stand_ins[id(stand_in)] = stand_in
        return stand_in

    def number(self, tree: Node) -> RelayExpr:
        """Build a scalar constant."""
        value, dtype = literal_number(tree.children[0])
        if dtype.startswith("int"):
            bits = int(dtype[3:])
            if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
                self.error(tree, f"the literal {tree.children[0]} does not fit {dtype}")
                value = 0
        array = np.asarray(value, dtype=nd.numpy_dtype(dtype))
        return relay.Constant(nd.array(array), self.span(tree))

    def make_function(self, tree: Node, parts: Sequence[Node]) -> Steps[relay.Function]:
        """Build a function from optional type parameters, parameters and attributes, optional result type, and
        block.
        """
        by_kind = {part.data: part for part in parts}
        self.scopes.append({})
        with self.type_variables(by_kind.get("type_params")) as variables:
            params: list[relay.Var] = []
            attrs: dict[str, Any] = {}
            for item in by_kind["params"].children if "params" in by_kind else ():
                if item.data == "attribute":
                    self.attribute(item, attrs)
                else:
                    params.append((yield self.declare(item)))
            returned = (yield self.type(by_kind["returned"].children[0])) if "returned" in by_kind else None
            body = yield self.block(by_kind["block"])
        self.scopes.pop()
        return relay.Function(params, body, returned, variables, attrs, self.span(tree))

    def match(self, tree: Node) -> Steps[RelayExpr]:
        """Build ``match (data) { pattern => value, ... }``."""
        data = yield self.expr(tree.children[0])
        clauses = []
        for item in tree.children[1:]:
            self.scopes.append({})
            pattern = yield self.pattern(item.children[0])
            result = item.children[1]
            value = yield (self.block(result) if result.data == "block" else self.expr(result))
            self.scopes.pop()
            clauses.append(adt.Clause(pattern, value, self.span(item)))
        return adt.Match(data, clauses, tree.data == "match", self.span(tree))

    def pattern(self, tree: Node) -> Steps[adt.Pattern]:
        """Build a pattern of a clause."""
        span = self.span(tree)
        if tree.data == "declared":
            return adt.PatternVar((yield self.declare(tree)), span)
        if tree.data == "pattern_tuple":
            return adt.PatternTuple((yield self.patterns(tree.children)), span)
        name = str(tree.children[0])
        if name == "_" and tree.data == "pattern_name":
            return adt.PatternWildcard(span)
        inner = yield self.patterns(tree.children[1:])
        constructor = self.constructors.get(name)
        if constructor is None:
            self.error(tree, f"constructor {name} is not known{suggestion(name, self.constructors)}")
            return adt.PatternWildcard(span)
        if len(inner) != len(constructor.inputs):
            wanted = len(constructor.inputs)
            self.error(tree, f"constructor {name} takes {wanted} arguments, the pattern has {len(inner)}")
        return adt.PatternConstructor(constructor, inner, span)

    def patterns(self, trees: Sequence[Node]) -> Steps[list[adt.Pattern]]:
        """Build several patterns, in order."""
        result = []
        for tree in trees:
            result.append((yield self.pattern(tree)))
        return result

    # Calls and attributes

    def call(self, tree: Node) -> Steps[RelayExpr]:
        """Build ``callee(arguments, attribute=value)``."""
        callee_tree, arguments = tree.children
        if callee_tree.data == "name":
            callee = self.operator_or_constructor(callee_tree.children[0])
        else:
            callee = yield self.expr(callee_tree)
        args: list[RelayExpr] = []
        given: dict[str, Any] = {}
        attrs: Attrs | None = None
        for item in arguments.children:
            if item.data == "attribute":
                self.attribute(item, given)
            elif item.data == "meta" and isinstance(found := self.meta_node(item), Attrs):
                attrs = found
            else:
                args.append((yield self.expr(item)))
        if attrs is None:
            attrs = self.call_attributes(tree, callee, given)
        if isinstance(callee, adt.Constructor) and len(args) != len(callee.inputs):
            wanted = len(callee.inputs)
            self.error(tree, f"constructor {callee.name_hint} takes {wanted} arguments, found {len(args)}")
        return relay.Call(callee, args, attrs, span=self.span(tree))

    def attribute(self, tree: Node, given: dict[str, Any]) -> None:
        """Read ``name=value`` into ``given``."""
        name_token = tree.children[0]
        name = unquote(name_token) if name_token.type == "STRING" else str(name_token)
        if name in given:
            self.error(tree, f"attribute {name} is given twice")
        given[name] = trampoline.run(self.value(tree.children[1]))
        self.attribute_places[name] = tree

    def call_attributes(self, tree: Node, callee: RelayExpr, given: dict[str, Any]) -> Attrs | None:
        """Return the attributes object of a call, checked against the operator's declaration."""
        if isinstance(callee, Op):
            definition = callee.get_attr("OpDef")
            cls = definition.attrs_type if definition is not None else None
            if cls is None:
                if given:
                    self.error(tree, f"operator {callee.name} takes no attributes, found {', '.join(given)}")
                return None
        else:
            key = given.pop("attrs_type_key", None)
            if key is None:
                if given and id(callee) not in self.stand_ins:
                    self.error(tree, f"only operators take attributes, found {', '.join(given)}")
                return None
            cls = self.attributes_class(tree, key)
            if cls is None:
                return None
        attrs, problems = make_attributes(cls, given)
        for problem in problems:
            self.error(self.attribute_places.get(problem.name, tree), problem.message)
        return attrs

    def value(self, tree: Node) -> Steps[Any]:
        """Build the value of an attribute."""
        child: Any = tree.children[0] if tree.children else None
        match tree.data:
            case "int_value" | "float_value":
                return attribute_number(child)
            case "string_value":
                return unquote(child)
            case "true_value" | "false_value":
                return tree.data == "true_value"
            case "any_value":
                return self.any_dimension()
            case "name_value":
                if child == "None":
                    return None
                self.error(tree, f'{child} is no value; a string is written in quotes, "{child}"')
                return None
            case "list_value":
                items = []
                for item in tree.children:
                    items.append((yield self.value(item)))
                return tuple(items)
            case "dict_value":
                pairs = {}
                for key, item in zip(tree.children[::2], tree.children[1::2], strict=True):
                    pairs[unquote(key)] = yield self.value(item)
                return pairs
            case _:
                return self.meta_node(tree)

    def meta_expr(self, tree: Node) -> RelayExpr:
        """Return ``meta[relay.Constant][0]`` in the place of an expression."""
        found = self.meta_node(tree)
        if isinstance(found, RelayExpr):
            return found
        if found is not None:
            self.error(tree, f"the metadata holds a {type(found).__name__} here, an expression is wanted")
        return relay.Var("missing")
