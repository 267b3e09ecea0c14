"""Tokens to a tree, by recursive descent.

The grammar of Relay's text, version 0.0.5, without its metadata section, which is JSON. ``x,*`` is a list with commas
between, which may end with one::

    module     ::= VERSION? (function | datatype | extern)*          expression ::= VERSION? body
    function   ::= "def" GLOBAL rest
    rest       ::= typeparams? "(" param,* ")" ("->" type)? block
    datatype   ::= "type" NAME typeparams? "{" (NAME ("(" type,* ")")?),* "}"
    extern     ::= "extern" "type" NAME typeparams? ";"?             typeparams ::= "[" NAME,* "]"
    param      ::= declared | attribute                              declared ::= LOCAL (":" type)?
    block      ::= "{" body "}"                                      body ::= statement* expr
    statement  ::= "let" declared "=" expr ";" | GRAPH "=" expr ";" | "free_var" declared ";" | expr ";"
    expr       ::= postfix (OPERATOR postfix)*                       postfix ::= atom (PROJECTION | "(" argument,* ")")*
    argument   ::= expr | attribute                                  attribute ::= (NAME | STRING) "=" value
    atom       ::= LOCAL | GRAPH | GLOBAL | NAME | INT | FLOAT | "True" | "False" | meta
                 | "(" ")" | "(" expr "," expr,* ")" | "(" body ")" | "fn" rest | "if" "(" expr ")" block "else" block
                 | "match" "?"? expr "{" clause* "}" | "ref" "(" expr ")" | "ref_read" "(" expr ")"
                 | "ref_write" "(" expr "," expr ")"
    clause     ::= pattern "=>" (block | (GRAPH "=" expr ";")* expr) ","?
    pattern    ::= declared | NAME ("(" pattern,* ")")? | "(" pattern,* ")"
    type       ::= NAME ("[" type,* "]")? | "Tensor" "[" "(" dimension,* ")" "," NAME "]" | "(" type,* ")"
                 | "fn" typeparams? "(" type,* ")" "->" type | "ref" "(" type ")"
    dimension  ::= INT | "?" | NAME | meta                           meta ::= "meta" "[" NAME "]" "[" INT "]"
    value      ::= INT | FLOAT | STRING | "True" | "False" | "?" | NAME | meta
                 | "[" value,* "]" | "(" value,* ")" | "{" (STRING ":" value),* "}"

The builder applies the precedence of operators. Methods recurse as deep as the text nests, with enough stack
(``ir.prim_functor.ensure_stack``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tilewright.ir.prim_functor import DEPTH_STEP, ensure_stack
from tilewright.relay.text.lexer import END, Token, token, tokenize

_LEAVES = {
    "LOCAL": "local", "GRAPH": "graph", "GLOBAL": "global_var", "INT": "int_constant", "FLOAT": "float_constant",
}  # fmt: skip
_VALUES = {"INT": "int_value", "FLOAT": "float_value", "STRING": "string_value", "?": "any_value"}
_AN_EXPRESSION, _A_TYPE, _A_VALUE = "an expression", "a type", "a value"


class Tree:
    """A rule of the grammar: its name, its parts (trees and tokens), its beginning and end in the text (-1:
    nowhere).
    """

    __slots__ = ("children", "data", "start", "stop")

    def __init__(self, data: str, children: list[Any], start: int, stop: int) -> None:
        self.data, self.children, self.start, self.stop = data, children, start, stop


class SyntaxProblem(Exception):
    """An error: the place, the token found there, and the expected ones."""

    def __init__(self, found: Token, expected: str) -> None:
        self.found, self.expected = found, expected
        super().__init__(expected)


class Syntax:
    """Parser of one text."""

    def __init__(self, text: str) -> None:
        self.kinds, self.texts, self.starts = tokenize(text)
        self.at = 0
        self._depth = 0

    # ---- tokens ----
    def _fail(self, expected: str) -> NoReturn:
        raise SyntaxProblem(self._token(), expected)

    def _token(self) -> Token:
        return token(self.texts[self.at], self.kinds[self.at], self.starts[self.at])

    def _take(self, kind: str, expected: str = "") -> Token:
        """Return the next token, which must be of ``kind``."""
        if self.kinds[self.at] != kind:
            self._fail(expected or f"`{kind}`")
        found = self._token()
        self.at += 1
        return found

    def _skip(self, mark: str) -> bool:
        """Skip ``mark`` if it is next; return whether it was."""
        if self.kinds[self.at] != mark:
            return False
        self.at += 1
        return True

    def _word(self, name: str) -> None:
        if self.texts[self.at] != name:
            self._fail(f"`{name}`")
        self.at += 1

    def _mark(self, mark: str, expected: str = "") -> None:
        if self.kinds[self.at] != mark:
            self._fail(expected or f"`{mark}`")
        self.at += 1

    def _tree(self, data: str, children: list[Any], first: int) -> Tree:
        """Return the tree of the tokens from ``first`` to here."""
        last = self.at - 1
        if last < first:
            return Tree(data, children, -1, -1)
        return Tree(data, children, self.starts[first], self.starts[last] + len(self.texts[last]))

    def _list(self, item: Callable[[], Any], close: str) -> list[Any]:
        """Parse ``item, item, ...`` up to the mark ``close``, which is skipped."""
        found: list[Any] = []
        while not self._skip(close):
            found.append(item())
            if not self._skip(","):
                self._mark(close, f"`,` or `{close}`")
                break
        return found

    def _number(self) -> Token | None:
        """Parse a number with its sign or signs, if one is here."""
        at, kinds, first = self.at, self.kinds, self.starts[self.at]
        while self.texts[at] == "-" and self.starts[at + 1] == self.starts[at] + 1:
            at += 1
        sign = "-" if (at - self.at) % 2 else ""
        if kinds[at] != "INT" and kinds[at] != "FLOAT":
            return None
        self.at = at + 1
        return token(sign + self.texts[at], kinds[at], first)

    def _deeper(self) -> None:
        self._depth += 1
        if not self._depth % DEPTH_STEP:
            ensure_stack()

    # ---- definitions ----
    def module(self) -> Tree:
        """Parse the whole text as a module."""
        items = self._version()
        while self.kinds[self.at] != END:
            word, first = self.texts[self.at], self.at
            self.at += 1
            if word == "def":
                items.append(self._tree("function_def", [self._take("GLOBAL", "a global name"), *self._rest()], first))
            elif word == "type":
                items.append(self._datatype(first))
            elif word == "extern":
                self._word("type")
                name = self._take("NAME", "a name")
                parts = [name, *self._type_params()]
                self._skip(";")
                items.append(self._tree("extern_type", parts, first))
            else:
                self.at -= 1
                self._fail("`def`, `type`, `extern` or the end of the text")
        return self._tree("module", items, 0)

    def expression(self) -> Tree:
        """Parse the whole text as an expression."""
        tree = self._tree("expression", [*self._version(), self._body()], 0)
        self._mark(END, "the end of the text")
        return tree

    def _version(self) -> list[Any]:
        if self.kinds[0] != "VERSION":
            return []
        return [Tree("version", [self._take("VERSION")], self.starts[0], self.starts[0] + len(self.texts[0]))]

    def _datatype(self, first: int) -> Tree:
        parts = [self._take("NAME", "a name"), *self._type_params()]
        self._mark("{")
        parts += self._list(self._constructor, "}")
        return self._tree("type_def", parts, first)

    def _constructor(self) -> Tree:
        first = self.at
        parts: list[Any] = [self._take("NAME", "a name")]
        if self._skip("("):
            parts += self._list(self._type, ")")
        return self._tree("constructor", parts, first)

    def _type_params(self) -> list[Any]:
        first = self.at
        if not self._skip("["):
            return []
        return [self._tree("type_params", self._list(lambda: self._take("NAME", "a name"), "]"), first)]

    def _rest(self) -> list[Any]:
        """Parse type parameters, parameters, result and block of a function."""
        parts = self._type_params()
        self._mark("(")
        first = self.at
        params = self._list(self._param, ")")
        if params:
            parts.append(Tree("params", params, self.starts[first], params[-1].stop))
        first = self.at
        if self._skip("->"):
            parts.append(self._tree("returned", [self._type()], first))
        parts.append(self._block())
        return parts

    def _param(self) -> Tree:
        return self._declared() if self.kinds[self.at] == "LOCAL" else self._attribute("a variable such as %x")

    def _declared(self) -> Tree:
        first = self.at
        parts: list[Any] = [self._take("LOCAL", "a variable such as %x")]
        if self._skip(":"):
            parts.append(self._type())
        return self._tree("declared", parts, first)

    def _block(self) -> Tree:
        first = self.at
        self._mark("{")
        body = self._body()
        self._mark("}", "`;` or `}`" if self.kinds[self.at] != END else "`}`")
        return self._tree("block", [body], first)

    # ---- expressions ----
    def _body(self) -> Tree:
        first = self.at
        items: list[Any] = []
        while True:
            start, kind, following = self.at, self.kinds[self.at], self.kinds[self.at + 1 : self.at + 2]
            if kind == "GRAPH" and following == ["="]:
                name = self._take("GRAPH")
                self.at += 1
                items.append(self._statement("graph_binding", [name, self._expr()], start))
            elif kind == "NAME" and following == ["LOCAL"] and self.texts[start] == "let":
                self.at += 1
                declared = self._declared()
                self._mark("=")
                items.append(self._statement("let", [declared, self._expr()], start))
            elif kind == "NAME" and following == ["LOCAL"] and self.texts[start] == "free_var":
                self.at += 1
                items.append(self._statement("free_var", [self._declared()], start))
            else:
                value = self._expr()
                if self.kinds[self.at] != ";":
                    return self._tree("body", [*items, value], first)
                items.append(self._statement("sequenced", [value], start))

    def _statement(self, data: str, parts: list[Any], first: int) -> Tree:
        self._mark(";", "`;` or an operator")
        return self._tree(data, parts, first)

    def _expr(self) -> Any:
        self._deeper()
        first = self.at
        value = self._postfix()
        if self.kinds[self.at] == "OPERATOR":
            parts = [value]
            while self.kinds[self.at] == "OPERATOR":
                parts += [self._take("OPERATOR"), self._postfix()]
            value = self._tree("infix", parts, first)
        self._depth -= 1
        return value

    def _postfix(self) -> Any:
        first = self.at
        value = self._atom()
        while True:
            kind = self.kinds[self.at]
            if kind == "(":
                start = self.at
                self.at += 1
                inner = self._list(self._argument, ")")
                arguments = Tree("arguments", inner, self.starts[start], self.starts[self.at - 1] + 1)
                value = self._tree("call", [value, arguments], first)
            elif kind == "PROJECTION":
                value = self._tree("projection", [value, self._take("PROJECTION")], first)
            else:
                return value

    def _argument(self) -> Any:
        kind = self.kinds[self.at]
        if (kind == "NAME" and self.kinds[self.at + 1] == "=") or kind == "STRING":
            return self._attribute(_AN_EXPRESSION)
        return self._expr()

    def _attribute(self, expected: str) -> Tree:
        first = self.at
        if self.kinds[first] not in ("NAME", "STRING"):
            self._fail(expected)
        name = self._take(self.kinds[first])
        self._mark("=")
        return self._tree("attribute", [name, self._value()], first)

    def _atom(self) -> Any:
        first, kind = self.at, self.kinds[self.at]
        data = _LEAVES.get(kind)
        if data is not None:
            return self._tree(data, [self._take(kind)], first)
        if kind == "NAME":
            keyword = _KEYWORDS.get(self.texts[first])
            if keyword is None:
                return self._tree("name", [self._take("NAME")], first)
            self.at += 1
            return keyword(self, first)
        if kind == "(":
            self.at += 1
            return self._parenthesized(first)
        number = self._number()
        if number is None:
            self._fail(_AN_EXPRESSION)
        return self._tree(_LEAVES[number.type], [number], first)

    def _parenthesized(self, first: int) -> Tree:
        if self._skip(")"):
            return self._tree("tuple", [], first)
        body = self._body()
        if len(body.children) == 1 and self._skip(","):
            return self._tree("tuple", [*body.children, *self._list(self._expr, ")")], first)
        self._mark(")", "`,` or `)`")
        return self._tree("grouped", [body], first)

    def _fn(self, first: int) -> Tree:
        return self._tree("function", self._rest(), first)

    def _if(self, first: int) -> Tree:
        condition = self._in_parentheses()
        then = self._block()
        self._word("else")
        return self._tree("if_else", [condition, then, self._block()], first)

    def _match(self, first: int) -> Tree:
        data = "match_partial" if self._skip("?") else "match"
        parts = [self._expr()]
        self._mark("{")
        while not self._skip("}"):
            parts.append(self._clause())
        return self._tree(data, parts, first)

    def _clause(self) -> Tree:
        first = self.at
        pattern = self._pattern()
        self._mark("=>")
        if self.kinds[self.at : self.at + 2] == ["GRAPH", "="]:
            result = self._tree("block", [self._body()], self.at)
        else:
            result = self._block() if self.kinds[self.at] == "{" else self._expr()
        self._skip(",")
        return self._tree("clause", [pattern, result], first)

    def _in_parentheses(self) -> Any:
        self._mark("(")
        inner = self._expr()
        self._mark(")")
        return inner

    def _ref_create(self, first: int) -> Tree:
        return self._tree("ref_create", [self._in_parentheses()], first)

    def _ref_read(self, first: int) -> Tree:
        return self._tree("ref_read", [self._in_parentheses()], first)

    def _ref_write(self, first: int) -> Tree:
        self._mark("(")
        ref = self._expr()
        self._mark(",")
        value = self._expr()
        self._mark(")")
        return self._tree("ref_write", [ref, value], first)

    def _true(self, first: int) -> Tree:
        return self._tree("true_constant", [], first)

    def _false(self, first: int) -> Tree:
        return self._tree("false_constant", [], first)

    def _meta(self, first: int) -> Tree:
        self._mark("[")
        key = self._take("NAME", "a name")
        self._mark("]")
        self._mark("[")
        index = self._take("INT", "an integer")
        self._mark("]")
        return self._tree("meta", [key, index], first)

    def _pattern(self) -> Tree:
        self._deeper()
        first, kind = self.at, self.kinds[self.at]
        if kind == "LOCAL":
            found = self._declared()
        elif self._skip("("):
            found = self._tree("pattern_tuple", self._list(self._pattern, ")"), first)
        else:
            name = self._take("NAME", "a pattern")
            if self._skip("("):
                found = self._tree("pattern_constructor", [name, *self._list(self._pattern, ")")], first)
            else:
                found = self._tree("pattern_name", [name], first)
        self._depth -= 1
        return found

    # ---- types ----
    def _type(self) -> Tree:
        self._deeper()
        first = self.at
        if self._skip("("):
            found = self._tree("tuple_type", self._list(self._type, ")"), first)
        else:
            name = self._take("NAME", _A_TYPE)
            found = _TYPES.get(name, Syntax._named_type)(self, name, first)
        self._depth -= 1
        return found

    def _named_type(self, name: Token, first: int) -> Tree:
        if self._skip("["):
            return self._tree("type_call", [name, *self._list(self._type, "]")], first)
        return self._tree("named_type", [name], first)

    def _tensor_type(self, name: Token, first: int) -> Tree:
        self._mark("[")
        self._mark("(")
        dimensions = self._list(self._dimension, ")")
        self._mark(",")
        dtype = self._take("NAME", "a data type")
        self._mark("]")
        return self._tree("tensor_type", [*dimensions, dtype], first)

    def _dimension(self) -> Any:
        first, kind = self.at, self.kinds[self.at]
        if kind == "?":
            self.at += 1
            return token("?", "ANY", self.starts[first])
        if kind == "NAME":
            if self.texts[first] == "meta" and self.kinds[first + 1] == "[":
                self.at += 1
                return self._meta(first)
            return self._take("NAME")
        number = self._number()
        if number is None or number.type != "INT":
            self.at = first
            self._fail("a dimension: an integer, a name or `?`")
        return number

    def _function_type(self, name: Token, first: int) -> Tree:
        parts = self._type_params()
        self._mark("(")
        parts += self._list(self._type, ")")
        self._mark("->")
        return self._tree("function_type", [*parts, self._type()], first)

    def _ref_type(self, name: Token, first: int) -> Tree:
        self._mark("(")
        inner = self._type()
        self._mark(")")
        return self._tree("ref_type", [inner], first)

    # ---- values of attributes ----
    def _value(self) -> Tree:
        self._deeper()
        first, kind = self.at, self.kinds[self.at]
        data = _VALUES.get(kind)
        if data is not None:
            found = self._tree(data, [self._take(kind)], first)
        elif kind == "NAME":
            found = self._named_value(first)
        elif kind in ("[", "("):
            self.at += 1
            found = self._tree("list_value", self._list(self._value, "]" if kind == "[" else ")"), first)
        elif self._skip("{"):
            pairs = self._list(self._pair, "}")
            found = self._tree("dict_value", [part for pair in pairs for part in pair], first)
        else:
            number = self._number()
            if number is None:
                self._fail(_A_VALUE)
            found = self._tree(_VALUES[number.type], [number], first)
        self._depth -= 1
        return found

    def _named_value(self, first: int) -> Tree:
        name = self._take("NAME")
        if name == "meta" and self.kinds[self.at] == "[":
            return self._meta(first)
        data = {"True": "true_value", "False": "false_value"}.get(name, "name_value")
        return self._tree(data, [name], first)

    def _pair(self) -> tuple[Token, Tree]:
        key = self._take("STRING", "a string")
        self._mark(":")
        return key, self._value()


_KEYWORDS: dict[str, Callable[[Syntax, int], Tree]] = {
    "fn": Syntax._fn, "if": Syntax._if, "match": Syntax._match, "ref": Syntax._ref_create, "meta": Syntax._meta,
    "ref_read": Syntax._ref_read, "ref_write": Syntax._ref_write, "True": Syntax._true, "False": Syntax._false,
}  # fmt: skip
_TYPES: dict[str, Callable[[Syntax, Token, int], Tree]] = {
    "Tensor": Syntax._tensor_type, "fn": Syntax._function_type, "ref": Syntax._ref_type,
}  # fmt: skip
