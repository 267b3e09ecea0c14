"""Nodes as JSON, in the form of TVM 0.8's ``tvm.ir.save_json``; also the content of a metadata section.

The graph of nodes is a list; a node names its children by their index in it (0 is null)::

    {"root": 1,
     "nodes": [{"type_key": ""},
               {"type_key": "relay.Constant", "attrs": {"data": "0", "span": "0", "_checked_type_": "2"}}, ...],
     "b64ndarrays": ["..."],
     "attrs": {"tvm_version": "0.8.0"}}

Numbers and strings that a class declares as such stand in ``attrs`` as text; lists are ``Array`` nodes, mappings
``Map`` nodes. What can be read is the fixed table of ``json_schema`` and the attribute classes of operators:
data never names code to run.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir import json_schema as schema
from tilewright.ir.attrs import Attrs, DictAttrs
from tilewright.ir.env_func import EnvFunc
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import FloatImm, IntImm
from tilewright.ir.span import SourceName

_FORMAT_VERSION = "0.8.0"


def type_key_of(value: Any) -> str:
    """Return TVM's name of the value's class, such as ``relay.Constant``; raises TilewrightError when it has none."""
    if isinstance(value, DictAttrs):
        return "DictAttrs"
    if isinstance(value, Attrs) and type(value).__module__ != "tilewright.testing.attrs":
        return f"relay.attrs.{type(value).__name__}"
    key = schema.key_of_class(type(value))  # type: ignore[arg-type]
    if key is None:
        raise TilewrightError(f"a {type(value).__name__} cannot be written as JSON")
    return key


class _Record(NamedTuple):
    """One entry of ``nodes`` under construction: children are objects, not yet indices."""

    key: str
    text: str | None = None
    attrs: Mapping[str, Any] = {}
    keys: Sequence[str] = ()
    data: Sequence[Any] = ()


class _Inline(str):
    """An attribute written as text, not as the index of a node."""

    __slots__ = ()


class _VarId(NamedTuple):
    """The identity of a Relay variable: a node of its own in TVM."""

    var: Any


class _Array(NamedTuple):
    """An array written in ``b64ndarrays``."""

    value: Any


def _boxed(value: Any) -> Any:
    """Convert Python scalars to nodes."""
    if isinstance(value, (bool, np.bool_)):
        return IntImm("bool", int(value))
    if isinstance(value, (int, np.integer)):
        return IntImm("int32" if -(2**31) <= value < 2**31 else "int64", int(value))
    if isinstance(value, (float, np.floating)):
        return FloatImm("float64", float(value))
    return value


def _inline(value: Any, kind: str) -> _Inline:
    if kind == "bool":
        return _Inline("1" if value else "0")
    if kind == "float":
        return _Inline(repr(float(value)))
    return _Inline(int(value) if kind == "int" else value)


def _node_record(node: Node) -> _Record:
    key = type_key_of(node)
    if isinstance(node, (Op, SourceName, EnvFunc)):
        return _Record(key, text=node.name)
    if isinstance(node, DictAttrs):
        return _Record(key, attrs={"__dict__": node.data})
    if isinstance(node, Attrs):
        fields = schema.attribute_fields(type(node))
    else:
        fields = schema.CLASSES[key].fields
    attrs: dict[str, Any] = {}
    for name, kind in fields:
        value = getattr(node, name)
        if kind == "array":
            attrs[name] = _Array(value)
        elif kind == "map":
            attrs[name] = value.data
        else:
            attrs[name] = value if kind in ("node", "name") else _inline(value, kind)
    if key == "relay.Var":
        attrs["vid"] = _VarId(node)
        del attrs["name_hint"]
    if key in ("FloatImm", "IntImm", "Range") or key.startswith("tir."):
        attrs["span"] = None
    if isinstance(node, RelayExpr):
        attrs["_checked_type_"] = node.checked_type_or_none
    return _Record(key, attrs=attrs)


def _module_record(mod: IRModule) -> _Record:
    attrs = {
        "attrs": mod.attrs,
        "functions": mod.functions,
        "global_type_var_map_": {v.name_hint: v for v in mod.type_definitions},
        "global_var_map_": {v.name_hint: v for v in mod.functions},
        "type_definitions": mod.type_definitions,
    }
    return _Record("IRModule", attrs=attrs)


def _record(value: Any) -> _Record:
    if isinstance(value, Node):
        return _node_record(value)
    if isinstance(value, _VarId):
        return _Record("relay.Id", attrs={"name_hint": value.var.name_hint})
    if isinstance(value, str):
        return _Record("runtime.String", text=value)
    if isinstance(value, (tuple, list)):
        return _Record("Array", data=[_boxed(v) for v in value])
    if isinstance(value, dict):
        if all(isinstance(k, str) for k in value):
            return _Record("Map", keys=list(value), data=[_boxed(v) for v in value.values()])
        return _Record("Map", data=[_boxed(x) for pair in value.items() for x in pair])
    if isinstance(value, IRModule):
        return _module_record(value)
    raise TilewrightError(f"a {type(value).__name__} ({value!r}) cannot be written as JSON")


def _identity(value: Any) -> Any:
    if isinstance(value, str):
        return ("text", value)
    if isinstance(value, _VarId):
        return ("id", id(value.var))
    return id(value)


class _Writer:
    """Numbers the nodes in reading order, and lays out the text as TVM's JSON writer does."""

    def __init__(self) -> None:
        self.index: dict[Any, int] = {}
        self.records: list[_Record] = []
        self.alive: list[Any] = []  # ids stay valid while what they belong to exists
        self.arrays: list[str] = []  # quoted

    def add(self, root: Any) -> None:
        """Number everything that is reachable from ``root``."""
        stack = [root]
        while stack:
            value = _boxed(stack.pop())
            key = _identity(value)
            if value is None or key in self.index:
                continue
            record = _record(value)
            self.records.append(record)
            self.index[key] = len(self.records)
            self.alive += [value, record]
            children = [record.attrs[k] for k in sorted(record.attrs)] + list(record.data)
            stack.extend(c for c in reversed(children) if not isinstance(c, (_Inline, _Array)))

    def reference(self, value: Any) -> int:
        """Return the index of the node of ``value``."""
        return 0 if value is None else self.index[_identity(_boxed(value))]

    def attribute(self, value: Any) -> str:
        """Text of an attribute: itself, or the index of a node or array."""
        if isinstance(value, _Inline):
            return str(value)
        if isinstance(value, _Array):
            from tilewright.runtime.params import array_to_bytes

            self.arrays.append(f'"{base64.b64encode(array_to_bytes(value.value)).decode()}"')
            return str(len(self.arrays) - 1)
        return str(self.reference(value))

    def node(self, record: _Record) -> str:
        """Text of one node."""
        parts = [f'"type_key": {_quote(record.key)}']
        if record.text is not None:
            parts.append(f'"repr_str": {_quote(record.text)}')
        if record.attrs:
            fields = [f"{_quote(k)}: {_quote(self.attribute(record.attrs[k]))}" for k in sorted(record.attrs)]
            parts.append(f'"attrs": {_block("{", fields, "}", 6, len(fields) > 1)}')
        if record.keys:
            parts.append(f'"keys": {_block("[", [_quote(k) for k in record.keys], "]", 6)}')
        if record.data:
            indices = [str(self.reference(v)) for v in record.data]
            parts.append(f'"data": {_block("[", indices, "]", 6, len(indices) > 10)}')
        return _block("{", parts, "}", 4)

    def text(self, root: Any) -> str:
        """The whole document."""
        self.add(root)
        nodes = [_block("{", ['"type_key": ""'], "}", 4), *(self.node(r) for r in self.records)]
        parts = [
            f'"root": {self.reference(root)}',
            f'"nodes": {_block("[", nodes, "]", 2)}',
            f'"b64ndarrays": {_block("[", self.arrays, "]", 2)}',
            f'"attrs": {{"tvm_version": "{_FORMAT_VERSION}"}}',
        ]
        return _block("{", parts, "}", 0)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _block(start: str, parts: Sequence[str], end: str, indent: int, lines: bool = True) -> str:
    if not parts or not lines:
        return start + ", ".join(parts) + end
    inner = "\n" + " " * (indent + 2)
    return start + inner + f", {inner}".join(parts) + "\n" + " " * indent + end


# Of classes that are no nodes: what makes a node of an object, and what makes an object of such a node.
_AS_NODE: dict[type, Callable[[Any], Node]] = {}
_RESTORED: dict[type, Callable[[Any], Any]] = {}


def register_record(cls: type, record: type[Node], save: Callable[[Any], Any], restore: Callable[[Any], Any]) -> None:
    """Let ``save_json`` write objects of ``cls``, which are no nodes, and ``load_json`` make them again.

    Args:
        cls: their class, such as ``te.Schedule``.
        record: the class of the nodes that are written.
        save: makes such a node of an object.
        restore: makes an object of such a node.
    """
    _AS_NODE[cls], _RESTORED[record] = save, restore


def save_json(node: Any) -> str:
    """Serialize ``node`` (a node, module, schedule, list, or mapping) as TVM's JSON; raises TilewrightError if it
    cannot.
    """
    as_node = _AS_NODE.get(type(node))
    return _Writer().text(node if as_node is None else as_node(node))


# Reading


_NAMED: dict[str, Callable[[str], Any]] = {"Op": Op.get, "SourceName": SourceName, "EnvFunc": EnvFunc.get}


class _Reader:
    """Builds the nodes of a document, children first."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.nodes: list[Mapping[str, Any]] = document["nodes"]
        self.arrays: list[str] = document.get("b64ndarrays", [])
        self.built: dict[int, Any] = {0: None}
        self.variables: dict[int, Any] = {}

    def build(self, root: int) -> Any:
        """The object of node ``root``."""
        stack = [root]
        opened: set[int] = set()
        while stack:
            index = stack[-1]
            if index in self.built:
                stack.pop()
                continue
            waiting = [i for i in self._references(index) if i not in self.built]
            if waiting and index in opened:
                raise ValueError(f"node {index} contains itself")
            if waiting:
                opened.add(index)
                stack.extend(reversed(waiting))
                continue
            self.built[index] = self._make(index)
            stack.pop()
        return self.built[root]

    def _references(self, index: int) -> list[int]:
        node = self.nodes[index]
        found = [int(i) for i in node.get("data", ())]
        for name, kind in self._fields(node):
            if kind in ("node", "map") and name in node.get("attrs", {}):
                found.append(int(node["attrs"][name]))
        return found

    def _fields(self, node: Mapping[str, Any]) -> list[tuple[str, str]]:
        kinds = {"name": lambda name: "node" if self._names_node(node, name) else "str"}
        return [(name, kinds[kind](name) if kind in kinds else kind) for name, kind in self._declared(node)]

    def _names_node(self, node: Mapping[str, Any], name: str) -> bool:
        """Return whether a name is a node of its own; TVM 0.6, and Tilewright once, wrote the text in its place."""
        text = str(node.get("attrs", {}).get(name, ""))
        at = int(text) if text.isdecimal() else 0
        return 0 < at < len(self.nodes) and self.nodes[at]["type_key"] == "runtime.String"

    def _declared(self, node: Mapping[str, Any]) -> list[tuple[str, str]]:
        key = node["type_key"]
        if key in ("Array", "Map", "runtime.String", *_NAMED, ""):
            return []
        if key == "DictAttrs":
            return [("__dict__", "node")]
        if key == "IRModule":
            return [("functions", "node"), ("type_definitions", "node"), ("attrs", "node")]
        if key == "relay.Id":
            return [("name_hint", "name")]
        if key.startswith("relay.attrs."):
            return list(schema.attribute_fields(schema.attribute_class(key)))
        if key not in schema.CLASSES:
            raise ValueError(f"the node type {key!r} is not known")
        fields = list(schema.CLASSES[key].fields)
        if key == "relay.Var":
            fields[0] = ("vid", "node")
        return [*fields, ("_checked_type_", "node")]

    def _make(self, index: int) -> Any:
        node = self.nodes[index]
        key = node["type_key"]
        data = [self.built[int(i)] for i in node.get("data", ())]
        if key == "Array":
            return tuple(data)
        if key == "Map":
            keys = node.get("keys")
            return dict(zip(keys, data, strict=True)) if keys else dict(zip(data[::2], data[1::2], strict=True))
        if key in ("runtime.String", *_NAMED):
            text = node.get("repr_str", "")
            if "repr_b64" in node:
                text = base64.b64decode(node["repr_b64"]).decode()
            return _NAMED.get(key, str)(text)
        values = {name: self._value(node, name, kind) for name, kind in self._fields(node)}
        return self._object(index, key, values)

    def _value(self, node: Mapping[str, Any], name: str, kind: str) -> Any:
        text = node.get("attrs", {}).get(name)
        if text is None:
            return None
        if kind == "node":
            return self.built[int(text)]
        if kind == "map":
            return DictAttrs(_unboxed(self.built[int(text)]))
        if kind == "array":
            from tilewright.runtime.params import array_from_bytes

            return array_from_bytes(base64.b64decode(self.arrays[int(text)], validate=True))
        convert: dict[str, Callable[[str], Any]] = {
            "int": int, "float": float, "str": str, "bool": lambda t: bool(int(t)),
        }  # fmt: skip
        return convert[kind](text)

    def _object(self, index: int, key: str, values: dict[str, Any]) -> Any:
        if key == "DictAttrs":
            return DictAttrs({k: _unboxed(v) for k, v in (values["__dict__"] or {}).items()})
        if key == "IRModule":
            return IRModule(values["functions"], values["type_definitions"], values["attrs"])
        if key == "relay.Id":
            return values["name_hint"]
        if key.startswith("relay.attrs."):
            given = {k: _unboxed(v) for k, v in values.items() if v is not None}
            return schema.attribute_class(key)(**given)
        checked_type = values.pop("_checked_type_", None)
        if key == "relay.Var":  # copies of a variable share its identifier
            vid = int(self.nodes[index]["attrs"]["vid"])
            values["name_hint"] = values.pop("vid")
            if vid not in self.variables:
                self.variables[vid] = schema.CLASSES[key].load()(**values)
            node = self.variables[vid]
        elif key in ("tir.Var", "tir.SizeVar"):
            node = schema.CLASSES[key].load()(values["name"], values["type_annotation"] or values["dtype"])
        elif key == "Tensor":  # an operation has each of its outputs once
            node = values["op"].output(values["value_index"])
        elif key == "Range":
            node = schema.CLASSES[key].load().from_min_extent(values["min"], values["extent"])
        else:
            given = {k: v for k, v in values.items() if k not in schema.CLASSES[key].derived}
            node = schema.CLASSES[key].load()(**given)
        return node.with_checked_type(checked_type) if isinstance(node, RelayExpr) else node


def _unboxed(value: Any) -> Any:
    """The plain Python value of an attribute."""
    if isinstance(value, IntImm):
        return bool(value.value) if value.dtype == "bool" else value.value
    if isinstance(value, FloatImm):
        return value.value
    if isinstance(value, tuple):
        return tuple(_unboxed(v) for v in value)
    if isinstance(value, dict):
        return {k: _unboxed(v) for k, v in value.items()}
    return value


def _with_todays_names(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The nodes of a document of TVM 0.6, whose classes have other names."""

    def upgraded(node: dict[str, Any]) -> dict[str, Any]:
        key = node["type_key"]
        node = {("repr_str" if name == "global_key" else name): value for name, value in node.items()}
        if key in ("relay.TypeVar", "relay.GlobalTypeVar"):
            name = nodes[int(node["attrs"]["var"])]["attrs"]["name"]
            node["attrs"] = {"name_hint": name, "kind": node["attrs"]["kind"]}
        moved = (key.removeprefix("relay."), f"tir.{key}")
        known = [name for name in moved if name in schema.CLASSES] if key not in schema.CLASSES else []
        return node | {"type_key": _OLD_NAMES.get(key) or next(iter(known), key)}

    return [upgraded(node) for node in nodes]


_OLD_NAMES = {"Variable": "tir.Var", "StrMap": "Map", "relay.Op": "Op", "relay.SourceName": "SourceName"}


def load_json(json_str: str) -> Any:
    """Load JSON of ``save_json``, ours or that of TVM 0.6 to 0.8: nodes; lists as tuples; mappings as dictionaries.

    Raises TilewrightError saying what is wrong with the json_str.
    """
    try:
        document = json.loads(json_str)
    except ValueError as error:
        raise TilewrightError(f"the json_str is not JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list) or "root" not in document:
        raise TilewrightError('the JSON json_str is not a graph of nodes: it has no "nodes" and "root"')
    try:
        if str((document.get("attrs") or {}).get("tvm_version", "")).startswith("0.6"):
            document["nodes"] = _with_todays_names(document["nodes"])
        node = _Reader(document).build(int(document["root"]))
        restore = _RESTORED.get(type(node))
        return node if restore is None else restore(node)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise TilewrightError(f"the JSON graph of nodes is damaged: {reason}") from None


__all__ = ["load_json", "register_record", "save_json", "type_key_of"]
