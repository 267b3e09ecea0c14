"""Structural equality and hash of IR, up to the names of variables.

Two values are equal when their fields are, bound variables correspond one to one (alpha-equivalence), constants
have the same contents, and, for Relay's dataflow graphs, what is shared on one side is shared on the other.
Spans, inferred types and the names of variables and buffers do not count. A free variable equals only itself
unless ``map_free_vars`` lets free variables correspond as well.

What each node class contributes is the table ``_RULES``; classes that are not in it contribute all their fields.
Equality and hash are built on the same decomposition of a value (``_decompose``), so they cannot disagree, but for
floating point attributes that have been rounded to float32 on one side: they are equal unless ``exact``.
Nothing recurses, and the hash is the same in every process.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir import prim_ops
from tilewright.ir.node import Node
from tilewright.ir.prim_expr import PrimExpr


class _Kind(enum.Enum):
    TREE = 0  # compared by its parts
    GRAPH = 1  # also by how it is shared
    VARIABLE = 2  # a name: compared by correspondence
    NAMED = 3  # one object for each name: compared by the fields that hold the name


class _Rule(NamedTuple):
    kind: _Kind
    fields: tuple[tuple[str, bool], ...]  # field name, and whether variables in it are defined there


def _rule(kind: _Kind, fields: str) -> _Rule:
    return _Rule(kind, tuple((name.rstrip("!"), name.endswith("!")) for name in fields.split()))


_TREE, _GRAPH, _VARIABLE, _NAMED = _Kind.TREE, _Kind.GRAPH, _Kind.VARIABLE, _Kind.NAMED

# Fields in the order of comparison: definitions (marked "!") come before their uses.
_RULES: dict[str, _Rule] = {
    "ir.op.Op": _rule(_NAMED, "name"),
    "ir.env_func.EnvFunc": _rule(_NAMED, "name"),
    "ir.expr.GlobalVar": _rule(_NAMED, "name_hint"),
    "ir.type.GlobalTypeVar": _rule(_NAMED, "name_hint"),
    "ir.type.TypeVar": _rule(_VARIABLE, "kind"),
    "ir.type.IncompleteType": _rule(_VARIABLE, "kind"),
    "ir.type.FuncType": _rule(_TREE, "type_params! arg_types ret_type type_constraints"),
    "ir.type.PointerType": _rule(_TREE, "element_type memory"),
    "ir.prim_expr.Var": _rule(_VARIABLE, "dtype type_annotation"),
    "ir.prim_expr.DimVar": _rule(_NAMED, "name low high multiple"),  # kernels may count on its range
    "ir.prim_expr.Any": _rule(_TREE, ""),
    "ir.prim_expr.Let": _rule(_TREE, "dtype var! value body"),
    "relay.expr.Var": _rule(_VARIABLE, "type_annotation"),
    "relay.expr.Constant": _rule(_TREE, "data"),
    "relay.expr.Function": _rule(_GRAPH, "type_params! params! ret_type attrs body"),
    "relay.expr.Let": _rule(_GRAPH, "var! value body"),
    "relay.expr.Call": _rule(_GRAPH, "op args attrs type_args"),
    "relay.expr.Expr": _rule(_GRAPH, "*"),
    "relay.adt.Constructor": _rule(_NAMED, "name_hint belong_to"),
    "relay.adt.TypeData": _rule(_TREE, "header type_vars! constructors"),
    "relay.adt.PatternVar": _rule(_TREE, "var!"),
    "ir.memory.Buffer": _rule(
        _TREE, "data! dtype shape! strides! elem_offset! data_alignment offset_factor buffer_type"
    ),
    "ir.iter_var.IterVar": _rule(_TREE, "dom var! iter_type thread_tag"),
    "ir.iter_var.CommReducer": _rule(_TREE, "lhs! rhs! result identity_element"),
    "ir.iter_var.Reduce": _rule(_TREE, "dtype axis! combiner source condition value_index init"),
    "tir.stmt.For": _rule(_TREE, "loop_var! min extent kind body thread_binding annotations"),
    "tir.stmt.LetStmt": _rule(_TREE, "value var! body"),
    "tir.stmt.Allocate": _rule(_TREE, "buffer_var! dtype extents condition body annotations"),
    "tir.function.PrimFunc": _rule(_TREE, "params! buffer_map! ret_type body attrs"),
}


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("tilewright.")


@cache
def _rule_of(cls: type) -> _Rule:
    own = tuple((name, False) for name in cls._fields if name != "span")  # type: ignore[attr-defined]
    for base in cls.__mro__:
        rule = _RULES.get(_class_name(base))
        if rule is not None:
            return _Rule(rule.kind, own) if rule.fields == (("*", False),) else rule
    return _Rule(_TREE, own)


class Shortcut(NamedTuple):
    """A faster comparison and hash for the nodes of one class; both return None if there is none."""

    equal: Callable[[Any, Any], bool | None]
    hash: Callable[[Any], int | None]


_SHORTCUTS: dict[type, Shortcut] = {}


def register_shortcut(cls: type, shortcut: Shortcut) -> None:
    """Compare and hash nodes of exactly this class by ``shortcut`` if it can."""
    _SHORTCUTS[cls] = shortcut


class _Parts(NamedTuple):
    """A value taken apart: a token that must be equal, and children that must correspond."""

    kind: _Kind
    token: tuple[Any, ...]
    children: list[tuple[str, Any, bool]]  # label, child, whether it defines variables


_LEAVES = (str, int, float, bool, bytes, type(None))


def _leaf(value: Any) -> Any:
    """A token that is equal for equal values of one type only: 1, 1.0 and True differ, NaN equals itself."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return ("bool", int(value))
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return ("float", struct.pack("<d", value))
    return value


def _is_rounded(left: Any, right: Any) -> bool:
    """Return whether two tokens are floating point numbers of which one is the other rounded to 32 bits."""
    if not all(isinstance(token, tuple) and token[0] == "float" for token in (left, right)):
        return False
    (a,), (b,) = struct.unpack("<d", left[1]), struct.unpack("<d", right[1])
    with np.errstate(over="ignore"):
        return bool(np.float32(a) == b or np.float32(b) == a)


def _array_token(value: Any) -> tuple[Any, ...]:
    array = np.ascontiguousarray(value if isinstance(value, np.ndarray) else value.numpy())
    digest = hashlib.blake2b(array.reshape(-1).view(np.uint8).data if array.size else b"", digest_size=16)
    return ("array", str(value.dtype), tuple(int(d) for d in value.shape), digest.digest())


def _decompose_node(node: Node) -> _Parts:
    rule = _rule_of(type(node))
    token: list[Any] = [_class_name(type(node))]
    children = []
    for name, defines in rule.fields:
        value = getattr(node, name)
        if isinstance(value, _LEAVES):
            token.append(_leaf(value))
        else:
            children.append((f".{name}", value, defines))
    # All () are equal: sharing of a node without parts does not matter.
    kind = _TREE if rule.kind is _GRAPH and all(child == () for _, child, _ in children) else rule.kind
    return _Parts(kind, tuple(token), children)


def _decompose_mapping(value: dict[Any, Any]) -> _Parts:
    if all(isinstance(k, str) for k in value):
        keys = sorted(value)
        return _Parts(_TREE, ("dict", *keys), [(f"[{k!r}]", value[k], False) for k in keys])
    children: list[tuple[str, Any, bool]] = []
    for i, (key, item) in enumerate(value.items()):
        children += [(f".keys[{i}]", key, False), (f".values[{i}]", item, False)]
    return _Parts(_TREE, ("dict", len(value)), children)


def _decompose(value: Any) -> _Parts:
    if isinstance(value, Node):
        return _decompose_node(value)
    if isinstance(value, (tuple, list)):
        return _Parts(_TREE, ("sequence", len(value)), [(f"[{i}]", v, False) for i, v in enumerate(value)])
    if isinstance(value, (*_LEAVES, np.generic)):
        return _Parts(_TREE, ("leaf", _leaf(value)), [])
    if isinstance(value, dict):
        return _decompose_mapping(value)
    if isinstance(value, np.ndarray) or (hasattr(value, "numpy") and hasattr(value, "dtype")):
        return _Parts(_TREE, _array_token(value), [])
    if hasattr(value, "structure"):  # no node, but says itself what it consists of (IRModule)
        return _Parts(_TREE, (type(value).__name__,), [(f".{k}", v, False) for k, v in value.structure().items()])
    if type(value).__name__ == "Target":
        return _Parts(_TREE, ("target", str(value)), [])
    return _Parts(_NAMED, ("object", _class_name(type(value))), [])


_Path = tuple[Any, str] | None


class _Difference(NamedTuple):
    path: _Path
    lhs: Any
    rhs: Any


class _Equality:
    """One comparison: a mapping of graph nodes and variables of the left side to those of the right."""

    def __init__(self, map_free_vars: bool, exact: bool) -> None:
        self.map_free_vars = map_free_vars
        self.exact = exact
        self.right_of: dict[int, Any] = {}
        self.left_of: dict[int, Any] = {}
        self.compared: set[tuple[int, int]] = set()

    def run(self, lhs: Any, rhs: Any) -> _Difference | None:
        """The first difference in reading order, or None."""
        stack: list[tuple[Any, Any, bool, _Path]] = [(lhs, rhs, self.map_free_vars, None)]
        while stack:
            left, right, defines, path = stack.pop()
            if isinstance(left, Node):
                pair = (id(left), id(right))
                if pair in self.compared:
                    continue
                self.compared.add(pair)
            elif left is right and isinstance(left, _LEAVES):
                continue
            a, b = _decompose(left), _decompose(right)
            if a.kind is not b.kind or len(a.children) != len(b.children) or not self._is_token(a.token, b.token):
                return _Difference(path, left, right)
            if not self._corresponds(a, left, right, defines):
                return _Difference(path, left, right)
            for (label, x, x_defines), (other, y, _) in zip(reversed(a.children), reversed(b.children), strict=True):
                if label != other:
                    return _Difference(path, left, right)
                stack.append((x, y, defines or x_defines, (path, label)))
        return None

    def _is_token(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
        if left == right or self.exact or len(left) != len(right):
            return left == right
        return all(a == b or _is_rounded(a, b) for a, b in zip(left, right, strict=True))

    def _corresponds(self, parts: _Parts, left: Any, right: Any, defines: bool) -> bool:
        if parts.kind is _TREE:
            return True
        if parts.kind is _NAMED:  # the token holds the name; an object of an unknown class equals only itself
            return parts.token[0] != "object" or left is right
        known = self.right_of.get(id(left))
        if known is not None:
            return known is right
        if id(right) in self.left_of:
            return False
        if parts.kind is _VARIABLE and not defines and left is not right:
            return False
        self.right_of[id(left)] = right
        self.left_of[id(right)] = left
        return True


def _as_expressions(lhs: Any, rhs: Any) -> tuple[Any, Any]:
    """Return both sides, converting a Python number beside an expression to a literal."""
    if isinstance(lhs, PrimExpr) and isinstance(rhs, (bool, int, float)):
        return lhs, prim_ops.as_expr(rhs)
    if isinstance(rhs, PrimExpr) and isinstance(lhs, (bool, int, float)):
        return prim_ops.as_expr(lhs), rhs
    return lhs, rhs


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False, exact: bool = False) -> bool:
    """Return whether two nodes, modules, attributes, arrays, or sequences and mappings of these, are the same program.

    ``map_free_vars`` lets free variables correspond like bound ones. A floating point attribute equals the same number
    rounded to float32, which it is after a way through a constant, unless ``exact``. As ``tvm.ir.structural_equal``, to
    which numbers are equal within 1e-9.
    """
    if lhs is rhs:
        return True
    lhs, rhs = _as_expressions(lhs, rhs)
    if type(lhs) is type(rhs) and (shortcut := _SHORTCUTS.get(type(lhs))) is not None:
        known = shortcut.equal(lhs, rhs)
        if known is not None:
            return known
    return _Equality(map_free_vars, exact).run(lhs, rhs) is None


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise ValueError with the first difference of two values and both texts, unless they are equal."""
    lhs, rhs = _as_expressions(lhs, rhs)
    difference = _Equality(map_free_vars, exact=False).run(lhs, rhs)
    if difference is None:
        return
    labels = []
    path = difference.path
    while path is not None:
        path, label = path
        labels.append(label)
    place = "<root>" + "".join(reversed(labels))
    raise ValueError(
        f"StructuralEqual check failed: the two sides differ at {place}\n"
        f"lhs there: {difference.lhs}\nrhs there: {difference.rhs}\n\nlhs:\n{lhs}\n\nrhs:\n{rhs}"
    )


def _digest(token: Any, children: bytes = b"") -> bytes:
    return hashlib.blake2b(repr(token).encode() + children, digest_size=8).digest()


class _Hash:
    """One hash: variables and shared graph nodes are numbered in reading order."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.known: dict[int, bytes] = {}
        self.variables = 0
        self.graph_nodes = 0

    def run(self, root: Any) -> bytes:
        """Digest of ``root``."""
        results: list[bytes] = []
        stack: list[tuple[Any, bool, tuple[Any, int] | None]] = [(root, self.map_free_vars, None)]
        while stack:
            value, defines, pending = stack.pop()
            if pending is not None:
                token, count = pending
                digest = _digest(token, b"".join(results[len(results) - count :]))
                del results[len(results) - count :]
                results.append(digest)
                if isinstance(value, Node) and id(value) not in self.known:
                    self.known[id(value)] = digest
                continue
            if isinstance(value, Node) and (found := self.known.get(id(value))) is not None:
                results.append(found)
                continue
            parts = _decompose(value)
            stack.append((value, defines, (self._token(parts, value, defines), len(parts.children))))
            stack.extend((child, defines or d, None) for _, child, d in reversed(parts.children))
        return results[0]

    def _token(self, parts: _Parts, value: Any, defines: bool) -> Any:
        if parts.kind is _VARIABLE:
            if not defines:
                return ("free", getattr(value, "name_hint", ""), parts.token)
            self.variables += 1
            return ("bound", self.variables, parts.token)
        if parts.kind is _GRAPH:
            self.graph_nodes += 1
            self.known[id(value)] = _digest(("shared", self.graph_nodes))
        return parts.token


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """Unsigned 64-bit hash that is equal for structurally equal values, in every process and on every machine."""
    shortcut = _SHORTCUTS.get(type(node))
    known = None if shortcut is None else shortcut.hash(node)
    return hash_of_parts(node, map_free_vars) if known is None else known


def hash_of_parts(node: Any, map_free_vars: bool = False) -> int:
    """Compute ``structural_hash`` without shortcuts."""
    return int.from_bytes(_Hash(map_free_vars).run(node), "little")
