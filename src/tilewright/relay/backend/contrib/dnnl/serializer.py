"""A region for oneDNN as JSON, in the dialect of TVM 0.8's runtime.

Operators that that runtime knows (``nn.conv2d``, ``nn.dense``, ``nn.batch_norm``, ``nn.relu``, ``add``, ``multiply``,
``dnnl.conv2d_relu``, ``dnnl.conv2d_bias_relu``) are written as it reads them; all others follow the same form. A
composite function is a node named after its operators, ``dnnl.dense_bias_sum_gelu``, with the attributes of its first
operator and of its activation; its inputs are the operator's, then the bias, then the summand.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay.backend.json_serializer import Entry, JSONSerializer, attribute_strings
from tilewright.relay.expr import Call, Function, Var
from tilewright.relay.function_attributes import COMPOSITE, GLOBAL_SYMBOL, PARTITIONED_FROM
from tilewright.relay.op.contrib.dnnl import Fused
from tilewright.runtime.module import Module
from tilewright.runtime.onednn import create_json_module


class DNNLSerializer(JSONSerializer):
    """Serializer that writes composite functions as nodes named after their operators."""

    def kernel(self, call: Call) -> tuple[str, dict[str, Any], list[Entry]]:
        """Return name, attributes and inputs of a call."""
        if not (isinstance(call.op, Function) and COMPOSITE.has(call.op)):
            return super().kernel(call)
        fused = Fused(call.op.body)
        given = dict(zip(call.op.params, call.args, strict=True))
        operands = [*fused.root.args, *(e for e in (fused.bias, fused.summand) if e is not None)]
        attrs = attribute_strings(fused.activation) if fused.activation is not None else {}
        attrs |= attribute_strings(fused.root)
        pattern = PARTITIONED_FROM.get(call.op, "")
        inputs = [entry for operand in operands for entry in self.visit(_given(operand, given))]
        return fused.name, attrs | {PARTITIONED_FROM.key: [[pattern]]}, inputs


def _given(operand: RelayExpr, given: dict[Var, RelayExpr]) -> RelayExpr:
    """Return the argument of a composite function for one of its operands, which may be a constant in its body."""
    return given[operand] if isinstance(operand, Var) else operand


def compile_to_json(func: Function) -> Module:
    """Return the module of an external function, of type ``dnnl_json``."""
    symbol = GLOBAL_SYMBOL.of(func)
    serializer = DNNLSerializer(symbol, func)
    return create_json_module(symbol, serializer.to_json(), serializer.constants)
