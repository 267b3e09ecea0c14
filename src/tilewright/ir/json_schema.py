"""Nodes in JSON form: their names in TVM 0.8, and the encoding of each field.

A field is written as a ``node`` unless the table says otherwise (``name:int``); a ``name`` is a node as well, of type
``runtime.String``. Classes are named by where they
are defined, so that this table can speak of Relay without importing it.
"""

from __future__ import annotations

import importlib
from collections.abc import Hashable
from functools import cache
from typing import Any, NamedTuple

from tilewright.ir.attrs import Attrs, DictAttrs

Fields = tuple[tuple[str, str], ...]


class NodeClass(NamedTuple):
    """A class with a JSON form."""

    path: str
    fields: Fields
    derived: frozenset[str]  # written for TVM's sake, but worked out by the constructor

    def load(self) -> Any:
        """The class itself."""
        module, name = self.path.rsplit(".", 1)
        return getattr(importlib.import_module(f"tilewright.{module}"), name)


def _fields(text: str) -> tuple[Fields, frozenset[str]]:
    fields, derived = [], set()
    for item in text.split():
        name, _, kind = item.rstrip("*").partition(":")
        fields.append((name, kind or "node"))
        if item.endswith("*"):
            derived.add(name)
    return tuple(fields), frozenset(derived)


def _records(module: str, table: dict[str, str]) -> dict[str, NodeClass]:
    """Classes that stand for objects that are no nodes, each named after its object."""
    return {name: NodeClass(f"{module}.{name}Record", *_fields(fields)) for name, fields in table.items()}


def _classes(prefix: str, module: str, table: dict[str, str]) -> dict[str, NodeClass]:
    return {f"{prefix}{name}": NodeClass(f"{module}.{name}", *_fields(fields)) for name, fields in table.items()}


_BINARY = {
    name: "dtype:str* a b"
    for name in (
        "Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max",
        "EQ", "NE", "LT", "LE", "GT", "GE", "And", "Or",
    )
}  # fmt: skip

# A star marks a field that the constructor works out from the others.
CLASSES: dict[str, NodeClass] = {
    **_classes(
        "relay.",
        "relay.expr",
        {
            "Constant": "data:array span",
            "Tuple": "fields span",
            "Var": "name_hint:str type_annotation span",
            "Call": "op args attrs type_args span",
            "TupleGetItem": "tuple_value index:int span",
            "Function": "params body ret_type type_params attrs span",
            "Let": "var value body span",
            "If": "cond true_branch false_branch span",
            "RefCreate": "value span",
            "RefRead": "ref span",
            "RefWrite": "ref value span",
        },
    ),
    **_classes(
        "relay.",
        "relay.adt",
        {
            "Constructor": "name_hint:name inputs belong_to tag:int span",
            "TypeData": "header type_vars constructors span",
            "Match": "data clauses complete:bool span",
            "Clause": "lhs rhs span",
            "PatternWildcard": "span",
            "PatternVar": "var span",
            "PatternConstructor": "constructor patterns span",
            "PatternTuple": "patterns span",
        },
    ),
    **_classes(
        "", "ir.affine_type", {"TensorAffineType": "scale zero_point dtype:str axis:int", "TupleAffineType": "types"}
    ),
    **_classes("relay.", "ir.type", {"TensorType": "shape dtype:str span", "RefType": "value span"}),
    **_classes(
        "",
        "ir.type",
        {
            "TupleType": "fields span",
            "FuncType": "arg_types ret_type type_params type_constraints span",
            "TypeVar": "name_hint:name kind:int span",
            "GlobalTypeVar": "name_hint:name kind:int span",
            "TypeCall": "func args span",
            "TypeRelation": "args func num_inputs:int attrs span",
            "IncompleteType": "kind:int span",
            "PrimType": "dtype:str",
            "PointerType": "element_type storage_scope:name",
        },
    ),
    **_classes("", "ir.expr", {"GlobalVar": "name_hint:name span"}),
    **_classes("", "ir.op", {"Op": "name:str"}),
    **_classes("attrs.", "testing.attrs", {"TestAttrs": "axis:int name:str padding func"}),
    **_classes("", "ir.env_func", {"EnvFunc": "name:str"}),
    **_classes("", "ir.span", {
        "SourceName": "name:str",
        "Span": "source_name line:int end_line:int column:int end_column:int",
    }),
    **_classes("", "ir.prim_expr", {"IntImm": "dtype:str value:int", "FloatImm": "dtype:str value:float"}),
    **_classes(
        "tir.",
        "ir.prim_expr",
        {
            "Var": "dtype:str name:name type_annotation",
            "SizeVar": "dtype:str name:name type_annotation",
            "Any": "dtype:str*",
            "StringImm": "dtype:str* value:name",
            "Cast": "dtype:str value",
            **_BINARY,
            "Not": "dtype:str* a",
            "Select": "dtype:str* condition true_value false_value",
            "Ramp": "dtype:str* base stride lanes:int",
            "Broadcast": "dtype:str* value lanes:int",
            "Let": "dtype:str* var value body",
            "Shuffle": "dtype:str* vectors indices",
            "Call": "dtype:str op args",
        },
    ),
    **_classes("", "ir.iter_var", {"Range": "min extent"}),
    **_classes(
        "tir.",
        "ir.iter_var",
        {
            "IterVar": "dom var iter_type:int thread_tag:name",
            "CommReducer": "lhs rhs result identity_element",
            "Reduce": "dtype:str* combiner source axis condition value_index:int init",
        },
    ),
    **_classes(
        "tir.",
        "ir.memory",
        {
            "Buffer": (
                "data dtype:str shape strides elem_offset name:name data_alignment:int offset_factor:int "
                "buffer_type:str"
            ),
            "Load": "dtype:str buffer_var index predicate",
            "BufferLoad": "dtype:str* buffer indices",
            "ProducerLoad": "dtype:str* producer indices",
        },
    ),
    **_classes(
        "tir.",
        "tir.stmt",
        {
            "For": "loop_var min extent kind:int body thread_binding annotations:map",
            "While": "condition body",
            "IfThenElse": "condition then_case else_case",
            "SeqStmt": "seq",
            "LetStmt": "var value body",
            "Store": "buffer_var value index predicate",
            "Allocate": "buffer_var dtype:str extents condition body annotations:map",
            "BufferStore": "buffer value indices",
            "BufferRealize": "buffer bounds condition body",
            "Prefetch": "buffer bounds locality:int",
            "AttrStmt": "node attr_key:name value body",
            "AssertStmt": "condition message body",
            "Evaluate": "value",
        },
    ),
    **_classes("tir.", "tir.function", {"PrimFunc": "params body ret_type buffer_map attrs"}),
    **_classes("", "te.tensor", {"Tensor": "shape dtype:str op value_index:int"}),
    **_classes("", "te.tensorize", {
        "TensorIntrin": "name:str op inputs buffers scalar_params body reduce_init reduce_update",
    }),
    **_classes(
        "",
        "te.operation",
        {
            "PlaceholderOp": "name:str tag:str attrs:map shape dtype:str",
            "ComputeOp": "name:str tag:str attrs:map axis reduce_axis body",
            "TensorComputeOp": (
                "name:str tag:str attrs:map axis reduce_axis schedulable_ndim:int intrin inputs input_regions "
                "scalar_inputs"
            ),
            "ScanOp": "name:str tag:str attrs:map scan_axis init update state_placeholder inputs spatial_axis",
            "ExternOp": "name:str tag:str attrs:map inputs input_placeholders output_placeholders body",
        },
    ),
    **_records(
        "te.schedule.saved",
        {
            "Schedule": "outputs stages groups stage_map",
            "Stage": (
                "op origin_op all_iter_vars leaf_iter_vars env_threads relations iter_var_attrs attach_type:int "
                "attach_ivar attach_stage scope:str is_output:bool double_buffer:bool group num_child_stages:int "
                "store_predicate"
            ),
            "Split": "parent outer inner factor nparts",
            "Fuse": "outer inner fused",
            "Rebase": "parent rebased",
            "Singleton": "iter",
            "IterVarAttr": (
                "iter_type:int bind_thread prefetch_data prefetch_offset tensor_intrin dim_align_factor:int "
                "dim_align_offset:int pragma_keys pragma_values"
            ),
        },
    ),
}  # fmt: skip

_KEY_BY_PATH = {info.path: key for key, info in CLASSES.items()}


@cache
def key_of_class(cls: Hashable) -> str | None:
    """The name in TVM of a class, or of the nearest base that has one."""
    assert isinstance(cls, type)
    for base in cls.__mro__:
        key = _KEY_BY_PATH.get(f"{base.__module__}.{base.__qualname__}".removeprefix("tilewright."))
        if key is not None:
            return key
    return None


def annotations_of(cls: type[Attrs]) -> dict[str, str]:
    """The declared type of each field of an attributes class, as text."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        for name, declared in vars(base).get("__annotations__", {}).items():
            found[name] = declared if isinstance(declared, str) else getattr(declared, "__name__", str(declared))
    return {name: found.get(name, "Any") for name in cls._fields}


@cache
def attribute_fields(cls: type[Attrs]) -> Fields:
    """Return the fields of an operator's attributes: int, float, bool and str are text, all else nodes."""
    plain = ("int", "float", "bool", "str")
    return tuple((n, a if a in plain else "node") for n, a in annotations_of(cls).items())


def attribute_class(key: str) -> type[Attrs]:
    """Return the attributes class that TVM calls ``key``; raises ValueError when there is none."""
    CLASSES["relay.Call"].load()  # with Relay, whose operators bring their attributes
    name = key.removeprefix("relay.attrs.")
    waiting: list[type[Attrs]] = [Attrs]
    while waiting:
        cls = waiting.pop()
        if cls.__name__ == name and cls is not Attrs:
            return cls
        waiting += cls.__subclasses__()
    raise ValueError(f"no operator has attributes of the type {key!r}")


def _make_attributes(cls: type[Attrs], fields: dict[str, Any]) -> Attrs:
    unknown = [name for name in fields if name not in cls._fields]
    if unknown:
        raise AttributeError(f"{cls.__name__} has no field {unknown[0]!r}; it has {', '.join(cls._fields)}")
    return cls(**fields)


def make_node(type_key: str, **kwargs: Any) -> Any:
    """Create the node of the class that TVM calls ``type_key``, from its fields by name.

    ``make_node("DictAttrs", Composite="my.conv")`` creates attributes of any names. Raises ValueError for an unknown
    class, AttributeError for an unknown field of attributes.
    """
    if type_key == "DictAttrs":
        return DictAttrs(kwargs)
    if type_key not in CLASSES:
        return _make_attributes(attribute_class(type_key), kwargs)
    info = CLASSES[type_key]
    cls = info.load()
    if isinstance(cls, type) and issubclass(cls, Attrs):
        return _make_attributes(cls, kwargs)
    return cls(**{name: value for name, value in kwargs.items() if name not in info.derived})
