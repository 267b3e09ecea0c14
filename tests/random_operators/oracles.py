"""What a model should give: by ONNX's reference evaluator, and by ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.random_operators.case import Case
from tests.random_operators.draw import FLOATS, Array
from tests.random_operators.onnx_runtime import server
from tests.random_operators.reference_ops import operators

_WIDENED = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def reference(case: Case) -> list[Array]:
    """Outputs by the reference evaluator: computed in float64 unless they must be equal. Raises what it raises."""
    if case.tolerance.kind == "exact":
        return _evaluate(case.model, case.inputs)
    return _evaluate(_map_floats(case.model, _wide), {name: _wide(array) for name, array in case.inputs.items()})


def magnitude(case: Case) -> list[Array]:
    """The outputs for the absolute values of all inputs, weights and factors."""

    def positive(array: Array) -> Array:
        return np.abs(_wide(array)) if str(array.dtype) in FLOATS else array

    model = _map_floats(case.model, positive)
    for node in model.graph.node:
        for attribute in node.attribute:
            attribute.f = abs(attribute.f)
    return _evaluate(model, {name: positive(array) for name, array in case.inputs.items()})


def onnx_runtime(case: Case) -> list[Array]:
    """Outputs by ONNX Runtime, unoptimized. Raises what it raises, often for what it does not implement."""
    outputs = [value.name for value in case.model.graph.output]
    return server().run(case.model.SerializeToString(), case.inputs, outputs)


def _evaluate(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found: Sequence[Any] = ReferenceEvaluator(model, new_ops=operators(model.opset_import[0].version)).run(
            None, inputs
        )
    return [np.asarray(value) for value in found]


def _wide(array: Array) -> Array:
    return np.asarray(array).astype("float64") if str(array.dtype) in FLOATS else array


def _map_floats(model: onnx.ModelProto, convert: Callable[[Array], Array]) -> onnx.ModelProto:
    """The model with floating-point inputs, weights and constants widened and converted."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for value in (*wide.graph.input, *wide.graph.output, *wide.graph.value_info):
        if value.type.tensor_type.elem_type in _WIDENED:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in wide.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(convert(numpy_helper.to_array(tensor)), tensor.name))
    for node in wide.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.CopyFrom(numpy_helper.from_array(convert(numpy_helper.to_array(attribute.t))))
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i in _WIDENED:
                attribute.i = TensorProto.DOUBLE
    return wide
