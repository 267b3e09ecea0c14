"""Numbers of dimensions of inputs that a model gives no shape for, from the nodes that use them.

Each node relates the ranks of its tensors: Relu's are equal, Gather's result has as many dimensions as its data and its
indices less one, a convolution's data has as many as its weights. Ranks spread from declared shapes and weights through
the graph, forwards and backwards, until nothing changes. An operand that is broadcast may have any rank up to that of
the result: it is taken to have as many where nothing else tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx
from onnx import numpy_helper

_ALIKE = frozenset([
    "Abs", "Acos", "Asin", "Atan", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Cos", "CumSum", "Dropout", "Elu",
    "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LayerNormalization",
    "LeakyRelu", "Log", "LogSoftmax", "Hardmax", "LpNormalization", "Mish", "Neg", "Not", "Pad", "QuantizeLinear",
    "DequantizeLinear", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Slice",
    "Softmax", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu", "Trilu", "BatchNormalization",
    "InstanceNormalization", "GroupNormalization", "AveragePool", "MaxPool", "LpPool", "GlobalAveragePool",
    "GlobalMaxPool", "LRN", "Resize", "Upsample", "ReverseSequence", "DepthToSpace", "SpaceToDepth", "Split",
    "Conv", "ConvTranspose", "ConvInteger",
])  # fmt: skip  # the first input and all results
_BROADCASTS = frozenset([
    "Add", "Sub", "Mul", "Div", "Pow", "Mod", "And", "Or", "Xor", "Equal", "Greater", "Less", "GreaterOrEqual",
    "LessOrEqual", "Where", "Max", "Min", "Sum", "Mean", "MatMul", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    "BitShift",
])  # fmt: skip
_DATA = {"Gemm": 2, "LSTM": 3, "GRU": 3, "RNN": 3, "LRN": 4, "DepthToSpace": 4, "SpaceToDepth": 4}

_Equation = tuple[tuple[tuple[str, int], ...], int]
"""Tensors, each with how often its rank counts, and what the sum is."""


def ranks_of(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto], given: Mapping[str, int]) -> dict[str, int]:
    """Return the ranks of tensors as far as they follow from those that are declared or ``given``."""
    search = _Search(graph, list(nodes), given)
    search.spread()
    while search.assume():
        search.spread()
    return search.ranks


class _Search:
    """Ranks that are known so far, and what relates the others to them."""

    def __init__(self, graph: onnx.GraphProto, nodes: list[onnx.NodeProto], given: Mapping[str, int]) -> None:
        self.constants = {t.name: t for t in graph.initializer}
        for node in nodes:
            if node.op_type == "Constant" and node.attribute[0].HasField("t"):
                self.constants[node.output[0]] = node.attribute[0].t
        declared = [v for v in (*graph.input, *graph.output, *graph.value_info) if v.type.tensor_type.HasField("shape")]
        self.ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in declared}
        self.ranks |= {name: len(tensor.dims) for name, tensor in self.constants.items()} | dict(given)
        self.broadcasts = [n for n in nodes if n.op_type in _BROADCASTS]
        self.equations = [equation for node in nodes for equation in self._equations(node)]

    def _equations(self, node: onnx.NodeProto) -> list[_Equation]:
        attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        op, ins, outs = node.op_type, list(node.input), [name for name in node.output if name]
        found = [_equal(ins[0], out) for out in outs] if op in _ALIKE else []
        if op.startswith("Conv"):
            found.append(_equal(ins[0], ins[1]))
        if op in _DATA:
            found.append((((ins[0], 1),), _DATA[op]))
        if op == "Concat":
            found += [_equal(name, outs[0]) for name in ins]
        if op == "Gather":
            found.append((((outs[0], 1), (ins[0], -1), (ins[1], -1)), -1))
        if op == "Transpose" and "perm" in attrs:
            found += [(((name, 1),), len(attrs["perm"])) for name in (ins[0], outs[0])]
        if op == "Transpose":
            found.append(_equal(ins[0], outs[0]))
        change = self._change(op, ins, attrs)
        return found if change is None else [*found, (((outs[0], 1), (ins[0], -1)), change)]

    def _change(self, op: str, ins: list[str], attrs: Mapping[str, Any]) -> int | None:
        """Return by how many dimensions the result has more than the data, where that is known."""
        if op in ("ArgMax", "ArgMin"):
            return 0 if attrs.get("keepdims", 1) else -1
        if op.startswith("Reduce") and attrs.get("keepdims", 1):
            return 0
        if op not in ("Unsqueeze", "Squeeze") and not op.startswith("Reduce"):
            return None
        axes = attrs.get("axes")
        if axes is None and len(ins) > 1 and ins[1] in self.constants:
            axes = numpy_helper.to_array(self.constants[ins[1]]).reshape(-1)
        return None if axes is None else len(axes) if op == "Unsqueeze" else -len(axes)

    def spread(self) -> None:
        """Find ranks until nothing changes."""
        before = -1
        while before != len(self.ranks):
            before = len(self.ranks)
            for terms, total in self.equations:
                self._solve(terms, total)
            for node in self.broadcasts:
                self._broadcast(node)

    def _solve(self, terms: tuple[tuple[str, int], ...], total: int) -> None:
        unknown = [(name, times) for name, times in terms if name not in self.ranks]
        if len(unknown) == 1:
            (name, times), known = unknown[0], sum(k * self.ranks[n] for n, k in terms if n in self.ranks)
            self._set(name, (total - known) * times)

    def _broadcast(self, node: onnx.NodeProto) -> None:
        operands, result = [name for name in node.input if name], node.output[0]
        known = [self.ranks[name] for name in operands if name in self.ranks]
        unknown = dict.fromkeys(name for name in operands if name not in self.ranks)
        plain = node.op_type != "MatMul" or min(known, default=2) > 1
        if not unknown and plain:
            self._set(result, max(known))
        elif len(unknown) == 1 and plain and self.ranks.get(result, 0) > max(known, default=0):
            self._set(next(iter(unknown)), self.ranks[result])

    def _set(self, name: str, rank: int) -> None:
        if name not in self.ranks and rank >= 0:
            self.ranks[name] = rank

    def assume(self) -> bool:
        """Take operands of a broadcast to have the result's rank, in the first node where that finds one."""
        for node in self.broadcasts:
            rank = self.ranks.get(node.output[0])
            unknown = [name for name in node.input if name and name not in self.ranks]
            if rank is not None and unknown:
                self.ranks |= dict.fromkeys(unknown, rank)
                return True
        return False


def _equal(a: str, b: str) -> _Equation:
    return ((a, 1), (b, -1)), 0
