"""ONNX's converters as parts of other formats' operators: what front ends have in common is done once.

An importer of another format is a ``PartsHost``, which answers what ONNX's converters ask their importer for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType
from tilewright.relay.analysis import free_vars
from tilewright.relay.expr import Constant, TupleWrapper, Var, const
from tilewright.relay.frontend.dimensions import Elements, numbers
from tilewright.relay.frontend.onnx.context import DESCRIBED_AS, NodeContext, typed
from tilewright.relay.frontend.onnx.elements import MOST_ELEMENTS, elements_of
from tilewright.relay.frontend.onnx.registry import find_converter
from tilewright.relay.transform.simplify.fold_constant import constant_value, fold_constant
from tilewright.relay.visitor import substitute
from tilewright.runtime import ndarray as nd
from tilewright.runtime.ndarray import numpy_dtype, numpy_view

OPSET = 22
EAGER_FOLD_ELEMENTS = 1 << 12


class PartsHost:
    """Inputs and parameters of a program, and what is known of values while it is imported."""

    def __init__(self) -> None:
        self.inputs: dict[str, Var] = {}
        self.params: dict[str, nd.NDArray] = {}
        self.known_elements: dict[RelayExpr, Elements] = {}
        self.unrounded: dict[RelayExpr, RelayExpr] = {}
        self.checked: dict[Any, RelayExpr] = {}
        self.in_training: list[str] = []
        self.strings = None
        self.static = False
        self.opset = OPSET
        self._constant_exprs: set[RelayExpr] = set()
        self._param_vars: dict[str, Var] = {}

    def param_var(self, name: str, data: nd.NDArray) -> Var:
        """Return the variable of a new parameter."""
        self.params[name] = data
        made = typed(Var(name, TensorType(data.shape, str(data.dtype))))
        assert isinstance(made, Var)
        self._param_vars[name] = made
        return made

    def params_in(self, value: RelayExpr) -> list[Var]:
        """Return the parameters that an expression reads."""
        used = set(free_vars(value))
        return [v for v in self._param_vars.values() if v in used]

    def is_param(self, var: Var) -> bool:
        """Return whether a variable is a parameter."""
        return self._param_vars.get(var.name_hint) is var

    def param_value(self, var: Var) -> np.ndarray[Any, Any] | None:
        """Return the value of a parameter; None for an input."""
        return numpy_view(self.params[var.name_hint]) if self.is_param(var) else None

    def with_params(self, expr: RelayExpr) -> RelayExpr:
        """Return the expression with parameters as constants."""
        binds = {v: const(self.params[v.name_hint]) for v in free_vars(expr) if isinstance(v, Var) and self.is_param(v)}
        return substitute(expr, binds) if binds else expr

    def is_constant_expr(self, expr: RelayExpr) -> bool:
        """Return whether an expression depends on constants alone."""
        return expr in self._constant_exprs or isinstance(expr, Constant)

    def is_known(self, expr: RelayExpr) -> bool:
        """Return whether an expression is a parameter, or depends on constants alone."""
        return self.is_param(expr) if isinstance(expr, Var) else self.is_constant_expr(expr)

    def inputs_of(self, expr: RelayExpr) -> list[str]:
        """Return the inputs that an expression is computed from."""
        names = {v.name_hint for v in free_vars(expr) if isinstance(v, Var)}
        return [name for name in self.inputs if name in names]

    def elements(self, ctx: Any, expr: RelayExpr) -> Elements | None:
        """Return what is known of the elements of a small tensor of integers or bools."""
        if expr in self.known_elements:
            return self.known_elements[expr]
        value = ctx.constant_or_none(expr)
        if value is None or value.size > MOST_ELEMENTS or value.dtype.kind not in "iub":
            return None
        found: Elements = value.astype(object)
        return found

    def folded(self, value: RelayExpr) -> RelayExpr:
        """Fold a small constant at once; record that a large one is constant."""
        type_ = value.checked_type
        if isinstance(type_, TensorType) and not type_.is_dynamic:
            if int(np.prod(type_.concrete_shape)) <= EAGER_FOLD_ELEMENTS:
                folded = fold_constant(typed(self.with_params(value)))
                if constant_value(folded) is not None:
                    value = typed(folded)
        self._constant_exprs.add(value)
        return value


def part_of(
    host: Any, described: str, name: str, op_type: str, inputs: Sequence[RelayExpr | None],
    attributes: Mapping[str, Any], domain: str = "", opset: int = OPSET, outputs: int = 1, notes: bool = False,
) -> Any:  # fmt: skip
    """Return the result of an operator of ONNX as a part of another format's node, which ``described`` names in errors.

    ``notes``: record what is known of the elements of integers, so that shapes which a program computes are known.
    """
    convert = find_converter(domain, op_type, opset)
    assert convert is not None, op_type
    names = ["" if value is None else f"operand {i}" for i, value in enumerate(inputs)]
    results = [f"result {i}" for i in range(outputs)]
    node = onnx.helper.make_node(op_type, names, results, name=name, domain=domain, **attributes)
    node.metadata_props.append(onnx.StringStringEntryProto(key=DESCRIBED_AS, value=described))
    context = NodeContext(host, node, [None if value is None else typed(value) for value in inputs])
    context.opset = opset
    made = convert(context)
    if isinstance(made, TupleWrapper):
        made = [made[i] for i in range(len(made))]
    found: list[RelayExpr] = [typed(m) for m in (made if isinstance(made, (list, tuple)) else [made])]  # type: ignore[arg-type]
    if notes:
        _note_elements(host, context, found)
    return found[0] if outputs == 1 else found


def _note_elements(host: PartsHost, context: NodeContext, found: list[RelayExpr]) -> None:
    """Record what is known of the elements of the first result; known numbers become a constant."""
    type_ = found[0].checked_type
    if not isinstance(type_, TensorType) or type_.dtype not in ("int64", "int32", "bool"):
        return
    elements = context.result_elements
    if elements is None:
        tensors = [context.optional(i) for i in range(context.num_inputs)]
        if not any(t is not None and t in host.known_elements for t in tensors):
            return
        known = [None if t is None else host.elements(context, t) for t in tensors]
        elements = elements_of(context.node, context.attrs, known)
    if elements is None:
        return
    whole = numbers(elements)
    if whole is not None:
        found[0] = typed(const(whole.astype(numpy_dtype(type_.dtype)), type_.dtype))
    else:
        host.known_elements[found[0]] = elements
