"""Helpers of front ends that are written outside of this package, by TVM's names: attributes, tables of expressions,
and questions about expressions while a graph is imported.

The front ends of this package do without: their converters get a context (``frontend/onnx/context.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.errors import OpNotImplemented, TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.type import TensorType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.analysis import free_vars
from tilewright.relay.backend.executor import create_executor
from tilewright.relay.expr import Function, Tuple, TupleWrapper, Var, const, var
from tilewright.relay.transform import FoldConstantExpr, InferType
from tilewright.runtime import ndarray as nd
from tilewright.runtime.ndarray import NDArray

_TRUE = ("true", "1", "t", "y", "yes")


class RequiredAttr:
    """The default of attributes that have none."""


_REQUIRED = RequiredAttr()


def _numbers(text: str) -> list[str]:
    return [part.strip() for part in text.strip("()[] ").split(",") if part.strip()]


class StrAttrsDict:
    """Attributes that are all texts, such as ``{"kernel": "(3, 3)"}``, read as what they stand for.

    Each method returns the attribute ``key``, or ``default`` where there is none; without a default that is an
    AttributeError.
    """

    def __init__(self, attrs: Mapping[str, str]) -> None:
        self.attrs = attrs

    def has_attr(self, key: str) -> bool:
        """Return whether there is an attribute."""
        return key in self.attrs

    def _get(self, key: str, default: Any, read: Callable[[str], Any]) -> Any:
        if key in self.attrs:
            return read(self.attrs[key])
        if isinstance(default, RequiredAttr):
            raise AttributeError(
                f"Required attribute {key} not found; there is {', '.join(sorted(self.attrs)) or 'none'}"
            )
        return default

    def get_float(self, key: str, default: Any = _REQUIRED) -> Any:
        """Return a number."""
        return self._get(key, default, float)

    def get_int(self, key: str, default: Any = _REQUIRED) -> Any:
        """Return a whole number; None for "None"."""
        return self._get(key, default, lambda text: None if text == "None" else int(text))

    def get_str(self, key: str, default: Any = _REQUIRED) -> Any:
        """Return the text."""
        return self._get(key, default, str)

    def get_bool(self, key: str, default: Any = _REQUIRED) -> Any:
        """Return whether it says true."""
        return self._get(key, default, lambda text: text.strip().lower() in _TRUE)

    def get_int_tuple(self, key: str, default: Any = _REQUIRED) -> Any:
        """Return whole numbers, None in place of anything else."""
        whole = re.compile(r"-?\s*\d+")
        return self._get(
            key, default, lambda text: tuple(int(n) if whole.fullmatch(n) else None for n in _numbers(text))
        )

    def get_int_list(self, key: str, default: Any = _REQUIRED) -> Any:
        """Return whole numbers."""
        return self._get(key, default, lambda text: tuple(map(int, _numbers(text))))

    def get_float_tuple(self, key: str, default: Any = _REQUIRED) -> Any:
        """Return numbers."""
        return self._get(key, default, lambda text: tuple(map(float, _numbers(text))))

    def get_tuple_tuple_int(self, key: str, default: Any = _REQUIRED) -> Any:
        """Return tuples of whole numbers: ``((0, 0), (1, 2))``."""
        groups = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
        return self._get(
            key, default, lambda text: tuple(tuple(map(int, _numbers(group))) for group in groups.findall(text))
        )


def get_relay_op(op_name: str) -> Callable[..., Any]:
    """Return what builds calls of an operator: ``"nn.relu"``, or ``"relu"``, which is looked for in all packages."""
    places: list[Any] = [relay_op] if "." in op_name else [relay_op, relay_op.nn, relay_op.image, relay_op.vision]
    for found in places:
        for name in op_name.split("."):
            found = getattr(found, name, None)
        if found is not None:
            return found
    raise OpNotImplemented(f"there is no operator {op_name} of Relay; relay.op.list_op_names() has them all")


class ExprTable:
    """Expressions by the names of a graph, and the arrays of its constants."""

    def __init__(self) -> None:
        self.exprs: dict[str, RelayExpr] = {}
        self.params: dict[str, Any] = {}
        self.const_ctr = 1
        self.in_padding = False
        self.paddings: Any = None

    def new_const(self, value: Any, shape: Sequence[int] | None = None, dtype: str = "float32") -> RelayExpr:
        """Return a new parameter whose value is ``value``."""
        name = f"_param_{self.const_ctr}"
        self.const_ctr += 1
        self.params[name] = value
        self.exprs[name] = var(name, shape=getattr(value, "shape", shape), dtype=dtype)
        return self.exprs[name]

    def get_expr(self, name: str) -> RelayExpr:
        """Return the expression of a name; KeyError where there is none."""
        return self.exprs[name]

    def set_expr(self, name: str, expr: RelayExpr, force_override: bool = False) -> None:
        """Give a name an expression; the first one stays, unless told otherwise."""
        if force_override or name not in self.exprs:
            self.exprs[name] = expr

    def has_expr(self, name: str) -> bool:
        """Return whether a name has an expression."""
        return name in self.exprs

    def set_padding(self, paddings: Any) -> None:
        """Keep the padding that the next operator has to take in."""
        self.paddings, self.in_padding = paddings, True

    def clear_padding(self) -> None:
        """Forget the padding."""
        self.in_padding = False


class AttrCvt:
    """Converter of an operator whose attributes have other names, or no meaning in Relay.

    ``AttrCvt("conv2d", transforms={"group": ("groups", 1)})(inputs, attrs)`` builds the call.

    Parameters
    ----------
    op_name : the operator, or a function that chooses it by the attributes.
    transforms : for an attribute the new name; or (name, default), or (name, default, function of the value). The
        default stands for None.
    excludes : attributes that are an error.
    disables, ignores : attributes that are left out.
    extras : attributes that are added.
    custom_check : a predicate of the attributes, and what is wrong where it does not hold.
    """

    ALWAYS_IGNORED = (
        "_output_shapes", "_input_shapes", "T", "use_cudnn_on_gpu", "_node_name", "is_training", "_target_layout",
        "tvm_custom",
    )  # fmt: skip

    def __init__(
        self,
        op_name: str | Callable[[Mapping[str, Any]], str],
        transforms: Mapping[str, Any] | None = None,
        excludes: Iterable[str] | None = None,
        disables: Iterable[str] | None = None,
        ignores: Iterable[str] | None = None,
        extras: Mapping[str, Any] | None = None,
        custom_check: tuple[Callable[[Mapping[str, Any]], bool], str] | None = None,
    ) -> None:
        self.op_name = op_name
        self.transforms = {key: self._transform(key, wanted) for key, wanted in (transforms or {}).items()}
        self.excludes = set(excludes or ())
        self.left_out = {*self.ALWAYS_IGNORED, *(disables or ()), *(ignores or ())}
        self.extras = dict(extras or {})
        self.custom_check = custom_check

    @staticmethod
    def _transform(key: str, wanted: Any) -> tuple[str, Any, Callable[[Any], Any]]:
        name, default, change = (*(wanted if isinstance(wanted, (tuple, list)) else (wanted,)), None, None)[:3]
        if not isinstance(name, str):
            raise ValueError(f"{wanted!r} is no new name of the attribute {key}; expected a name or (name, default)")
        return name, default, change or (lambda value: value)

    def __call__(self, inputs: Sequence[Any], attrs: Mapping[str, Any], *args: Any) -> Any:
        if self.custom_check and not self.custom_check[0](attrs):
            raise RuntimeError(f"Check failed: {self.custom_check[1]}")
        op_name = self.op_name if isinstance(self.op_name, str) else self.op_name(attrs)
        if unwanted := self.excludes & set(attrs):
            raise NotImplementedError(
                f"Attribute {', '.join(sorted(unwanted))} in operator {op_name} is not supported."
            )
        made = {key: value for key, value in attrs.items() if key not in self.left_out and key not in self.transforms}
        for key, (name, default, change) in self.transforms.items():
            if key in attrs:
                made[name] = default if attrs[key] is None else change(attrs[key])
        return get_relay_op(op_name)(*inputs, **made, **self.extras)


class Renamer:
    """Converter of an operator that only has another name in Relay."""

    def __init__(self, new_name: str) -> None:
        self.new_name = new_name

    def __call__(self, inputs: Sequence[Any], attrs: MutableMapping[str, Any], *args: Any) -> Any:
        attrs.pop("tvm_custom", None)
        return get_relay_op(self.new_name)(*inputs, **attrs)


def get_name(node: Any) -> str:
    """Return the name of a variable, "" of anything else."""
    name: str = getattr(node, "name_hint", "")
    return name


def infer_type(node: RelayExpr, mod: IRModule | None = None) -> RelayExpr:
    """Return ``node`` with types; the functions and data types of ``mod`` may be used."""
    whole = IRModule() if mod is None else mod.copy()
    whole["main"] = node if isinstance(node, Function) else Function(free_vars(node), node)
    typed = InferType()(whole)["main"]
    assert isinstance(typed, Function)
    return typed if isinstance(node, Function) else typed.body


def infer_shape(inputs: RelayExpr, mod: IRModule | None = None) -> tuple[Any, ...] | Type:
    """Return the shape of a tensor, numbers where they are known; the type of anything else."""
    type_ = infer_type(inputs, mod).checked_type
    if not isinstance(type_, TensorType):
        return type_
    return tuple(getattr(dim, "value", dim) for dim in type_.shape)


def infer_channels(inputs: RelayExpr, transpose: bool = False) -> Any:
    """Return the number of output channels of a weight (out, in, ...), or, with ``transpose``, (in, out, ...)."""
    shape = infer_shape(inputs)
    assert isinstance(shape, tuple)
    return shape[1 if transpose else 0]


def fold_constant(node: RelayExpr, mod: IRModule | None = None) -> RelayExpr:
    """Return ``node`` with its constant parts computed."""
    return FoldConstantExpr(node, IRModule() if mod is None else mod)


def infer_value(input_val: RelayExpr, params: Mapping[str, Any], mod: IRModule | None = None) -> Any:
    """Return the value of an expression whose free variables are among ``params``."""
    inputs = free_vars(input_val)
    if missing := [v.name_hint for v in inputs if v.name_hint not in params]:
        raise TilewrightError(f"the value depends on {', '.join(missing)}, which is not among the parameters")
    whole = IRModule() if mod is None else mod.copy()
    whole["main"] = Function(inputs, input_val)
    return create_executor("debug", mod=whole).evaluate()(*[params[v.name_hint] for v in inputs])


def infer_value_simulated(input_val: RelayExpr, params: Mapping[str, Any]) -> Any:
    """Return the value of an expression with numbers drawn from [0, 1) for the free variables that are not among
    ``params``: of use where only shapes of inputs matter.
    """
    drawn: dict[str, Any] = {}
    for free in free_vars(input_val):
        type_ = free.type_annotation
        if free.name_hint not in params and isinstance(type_, TensorType):
            drawn[free.name_hint] = nd.array(np.random.default_rng().random(type_.concrete_shape).astype(type_.dtype))
    return infer_value(input_val, {**params, **drawn})


def try_infer_value(
    val: RelayExpr,
    on_success: Callable[[Any], Any] | None = None,
    on_failure: Callable[[], Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> tuple[Any, bool]:
    """Return the value of an expression as a numpy array, or what ``on_success`` makes of it, and True; where it is not
    known, the result of ``on_failure``, or ``val``, and False.
    """
    try:
        value = infer_value(val, parameters or {}).numpy()
    except (TilewrightError, ValueError, TypeError):
        return (on_failure() if on_failure else val), False
    return (on_success(value) if on_success else value), True


def shape_of(x: RelayExpr, dtype: str = "int64") -> RelayExpr:
    """Return the shape: a constant where it is known."""
    type_ = infer_type(x).checked_type
    if isinstance(type_, TensorType) and not type_.is_dynamic:
        return const(np.array(type_.concrete_shape, dtype), dtype)
    return relay_op.shape_of(x, dtype)


def new_var(
    name_hint: str, type_annotation: Type | None = None, shape: Sequence[Any] | None = None, dtype: str = "float32"
) -> Var:
    """Return a variable, as ``relay.var`` does."""
    return var(name_hint, type_annotation, shape, dtype)


def to_int_list(np_array: Iterable[Any]) -> list[int]:
    """Return numbers as Python's."""
    return [int(number) for number in np_array]


def unbind(data: RelayExpr, axis: int = 0) -> TupleWrapper:
    """Return the slices of ``data`` along an axis, without that axis."""
    shape = infer_shape(data)
    if not isinstance(shape, tuple) or axis >= len(shape):
        raise AttributeError(f"there is no axis {axis} of {shape}; choose one that is less than the rank")
    parts = relay_op.split(data, shape[axis], axis)
    return TupleWrapper(Tuple([relay_op.squeeze(part, axis=[axis]) for part in parts]), shape[axis])


def ensure_scalar_shape(x: RelayExpr) -> RelayExpr:
    """Return a tensor of one element as a scalar."""
    shape = infer_shape(x)
    if shape == ():
        return x
    if not isinstance(shape, tuple) or any(extent != 1 for extent in shape):
        raise TilewrightError(f"expected a tensor of one element, found the shape {shape}")
    return relay_op.squeeze(x)


def try_resolve_var_to_const(x: RelayExpr, graph_params: Mapping[str, NDArray]) -> RelayExpr:
    """Return the constant that a variable stands for among the parameters, else ``x``."""
    if isinstance(x, Var) and x.name_hint in graph_params:
        type_ = infer_type(x).checked_type
        assert isinstance(type_, TensorType)
        return const(graph_params[x.name_hint].numpy(), type_.dtype)
    return x
