"""Which operators are quantized, and between which of them tensors become integers.

*Products* (Conv, ConvTranspose, Gemm, MatMul with constant weights) are quantized: their data input is, and a
convolution's result. Products of two computed matrices are where that is asked for: both operands are quantized then.
*Followers* (additions, pools, moves of elements, ...) are quantized where all that they read is quantized and what they
give is read by something quantized: they keep integers as integers, and are never a reason to make some.

A tensor is quantized after the activation that belongs to its operator, since both ``relay.qnn.groups`` and ONNX
Runtime compute Conv -> Relu -> QuantizeLinear as one: never between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import onnx

from tilewright.ir.errors import UnsupportedError, did_you_mean
from tilewright.quantization.graph import Graph, attributes_of, subgraphs

ACTIVATIONS = frozenset({"Relu", "Clip"})
"""Operators that are part of the one before them where it has no other reader."""

MOVES = frozenset({
    "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "MaxPool", "Gather", "DepthToSpace",
    "SpaceToDepth", "Expand", "Tile", "Identity", "Dropout", "Pad", "Resize",
})  # fmt: skip
"""Operators whose results are some of their first input's elements: both have one scale."""

ARITHMETIC = frozenset({
    "Add", "Mul", "AveragePool", "GlobalAveragePool", "ReduceMean", "Concat", "Relu", "Clip", "Sigmoid", "Tanh",
    "LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Gelu", "Mish", "Swish",
})  # fmt: skip
"""Operators that integers pass with a scale of their own for the result; those of one number are tables for us."""

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
PRODUCTS = CONVOLUTIONS | {"Gemm", "MatMul"}
COMPUTED = "both of its operands are computed"
_MORE_PRODUCTS = frozenset({"LSTM", "GRU", "RNN", "Attention", "Einsum"})


@dataclass(frozen=True)
class Layer:
    """A product with constant weights.

    ``axis`` is the dimension of the weights that output channels run along, ``end`` the tensor after the activation
    that belongs to it, ``added_bias`` the Add of a MatMul's bias. With ``one_scale`` no channel has a scale of its own:
    channels of a transposed convolution of groups share places of the weights.
    """

    node: onnx.NodeProto
    data: str
    weight: str
    axis: int
    bias: str | None
    end: str
    added_bias: onnx.NodeProto | None = None
    one_scale: bool = False

    @property
    def added_row(self) -> str | None:
        """The constant that ``added_bias`` adds."""
        if self.added_bias is None:
            return None
        return next(name for name in self.added_bias.input if name != self.node.output[0])


@dataclass
class Plan:
    """The quantized layers, the quantized followers by the tensor they end in, and the tensors that become integers.

    ``tables`` are nodes that take rows of tables of weights, ``shared`` pairs of tensors that have one scale,
    ``concatenations`` the tensors that had better have one, and ``float_nodes`` says why nodes that could be quantized
    are not. ``computed`` are products of two computed matrices.
    """

    layers: list[Layer] = field(default_factory=list)
    computed: list[onnx.NodeProto] = field(default_factory=list)
    followers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    tensors: list[str] = field(default_factory=list)
    shared: list[tuple[str, str]] = field(default_factory=list)
    concatenations: list[tuple[str, ...]] = field(default_factory=list)
    float_nodes: dict[str, str] = field(default_factory=dict)
    tables: list[onnx.NodeProto] = field(default_factory=list)

    @property
    def integer_ends(self) -> set[str]:
        """Tensors whose makers are quantized, so that everything reads their integers."""
        return ({layer.end for layer in self.layers} | set(self.followers)) & set(self.tensors)

    @property
    def quantized_nodes(self) -> set[str]:
        """Names of the layers' products, of the computed ones, and of the followers."""
        nodes = [*(layer.node for layer in self.layers), *self.computed, *self.followers.values()]
        return {node.name for node in nodes}


def check_excluded(graph: Graph, exclude: Collection[str]) -> None:
    """Raise an UnsupportedError for a name that no node has."""
    names = {node.name for node in graph.nodes}
    for name in exclude:
        if name not in names:
            products = [n.name for n in graph.nodes if n.op_type in PRODUCTS]
            shown = ", ".join(products[:8]) + (", ..." if len(products) > 8 else "")
            raise UnsupportedError(
                f"--exclude {name}: the model has no such node{did_you_mean(name, names)}; "
                f"its convolutions and products are {shown or 'none'}"
            )


def make_plan(graph: Graph, exclude: Collection[str] = (), dynamic: bool = False, computed: bool = False) -> Plan:
    """Decide what is quantized.

    Args:
        graph: a prepared model's (``prepare.prepared``).
        exclude: names of nodes that stay in float.
        dynamic: whether ranges are found while the model runs: matrix products alone are quantized then.
        computed: whether products of two computed matrices are quantized, too.

    Raises:
        UnsupportedError: a name of ``exclude`` is no node's.
    """
    check_excluded(graph, exclude)
    plan = Plan()
    for node in graph.nodes:
        layer = None if node.name in exclude else _layer(graph, node, plan.float_nodes)
        if layer is not None:
            plan.layers.append(layer)
        if node.name in exclude:
            plan.float_nodes[node.name] = "excluded"
        if any(True for _ in subgraphs(node)):
            plan.float_nodes[node.name] = f"the graphs inside of a {node.op_type} stay in float"
    if dynamic:
        for layer in plan.layers:
            if layer.node.op_type in CONVOLUTIONS:
                plan.float_nodes[layer.node.name] = "ranges that are found while it runs are for matrix products"
        plan.layers = [layer for layer in plan.layers if layer.node.op_type not in CONVOLUTIONS]
    else:
        if computed:
            plan.computed = [node for node in graph.nodes if plan.float_nodes.get(node.name) == COMPUTED]
        for node in plan.computed:
            del plan.float_nodes[node.name]
        _choose_tensors(graph, plan, exclude)
    return plan


# ---- products ----


def _layer(graph: Graph, node: onnx.NodeProto, reasons: dict[str, str]) -> Layer | None:
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type in _MORE_PRODUCTS:
        reasons[node.name] = (
            f"{node.op_type} has no form in QuantizeLinear and DequantizeLinear that is computed faster"
        )
    if node.op_type not in PRODUCTS:
        return None
    why = _unsuitable(graph, node)
    if why:
        reasons[node.name] = why
        return None
    return _fused(graph, node)


def _unsuitable(graph: Graph, node: onnx.NodeProto) -> str:
    """Return why a product is not quantized, or ""."""
    data, weight, *rest = node.input
    if data in graph.initializers:
        return "its data is constant"
    if weight not in graph.initializers:
        return COMPUTED
    if not graph.is_float_constant(weight):
        kind = onnx.TensorProto.DataType.Name(graph.initializers[weight].data_type)
        return f"its weights are {kind.lower()}, not float32"
    rank = len(graph.initializers[weight].dims)
    attrs = attributes_of(node)
    if node.op_type == "MatMul" and rank != 2:
        return f"its weights have {rank} dimensions, not 2"
    if node.op_type == "Gemm" and (attrs.get("transA", 0) or attrs.get("alpha", 1.0) != 1):
        return "it transposes its data or scales its product"
    if rest and rest[0]:
        shape = list(graph.initializers[rest[0]].dims) if rest[0] in graph.initializers else None
        if not graph.is_float_constant(rest[0]) or shape is None or len(shape) != 1 or attrs.get("beta", 1.0) != 1:
            return "its bias is no constant vector"
    return ""


def _fused(graph: Graph, node: onnx.NodeProto) -> Layer:
    """Return the layer of a product, with the bias and the activation that belong to it."""
    data, weight, *rest = node.input
    bias, end, added = (rest[0] or None) if rest else None, node.output[0], None
    if node.op_type == "MatMul":
        adder = graph.only_consumer(end)
        columns = graph.initializers[weight].dims[1]
        row = _row_added(graph, adder, end, columns) if adder is not None else None
        if adder is not None and row is not None:
            added, end = adder, adder.output[0]
    transposed = node.op_type == "Gemm" and attributes_of(node).get("transB", 0)
    axis = 0 if node.op_type == "Conv" or transposed else 1
    grouped = node.op_type == "ConvTranspose" and attributes_of(node).get("group", 1) != 1
    return Layer(node, data, weight, axis, bias, after_activations(graph, end), added, grouped)


def _row_added(graph: Graph, node: onnx.NodeProto, product: str, columns: int) -> str | None:
    """Return the constant vector that an Add adds to a product, a number for each of its columns."""
    if node.op_type != "Add":
        return None
    other = [name for name in node.input if name != product]
    is_row = len(other) == 1 and graph.is_float_constant(other[0])
    is_row = is_row and list(graph.initializers[other[0]].dims) == [columns]
    return other[0] if is_row else None


def after_activations(graph: Graph, name: str) -> str:
    """Return the tensor after Relu and Clip that alone read ``name``."""
    while True:
        node = graph.only_consumer(name)
        if node is None or node.op_type not in ACTIVATIONS or node.input[0] != name:
            return name
        if not all(bound in graph.initializers for bound in node.input[1:] if bound):
            return name
        name = node.output[0]


# ---- tensors ----


def _choose_tensors(graph: Graph, plan: Plan, exclude: Collection[str]) -> None:
    wanted = dict.fromkeys(layer.data for layer in plan.layers)
    wanted |= dict.fromkeys(name for node in plan.computed for name in node.input)
    wanted |= dict.fromkeys(layer.end for layer in plan.layers if layer.node.op_type in CONVOLUTIONS)
    ends = {layer.end for layer in plan.layers}
    fused = {name for layer in plan.layers for name in _inner(graph, layer.node.output[0], layer.end)}
    candidates = [n for n in graph.nodes if _may_follow(graph, n) and n.name not in exclude]
    candidates = [n for n in candidates if n.output[0] not in fused]
    _quantize_behind_moves(graph, candidates, wanted, ends)
    _follow(graph, candidates, plan, wanted)
    _leave_useless(graph, plan, wanted)
    order = [*graph.inputs, *(name for node in graph.nodes for name in node.output)]
    plan.tensors = [name for name in order if name in wanted]
    _share(plan)
    for node in candidates:
        if after_activations(graph, node.output[0]) not in plan.followers and _reads_integers(graph, node, plan):
            plan.float_nodes.setdefault(node.name, "not all that it reads, or nothing that reads it, is quantized")


def _inner(graph: Graph, start: str, end: str) -> Iterable[str]:
    """Yield the tensors of a layer from its product to its end."""
    yield start
    while start != end:
        start = graph.consumers[start][0].output[0]
        yield start


def operands(graph: Graph, node: onnx.NodeProto) -> list[str]:
    """Return the tensors of numbers that a follower computes with, constants too."""
    whole = node.op_type in ("Add", "Mul", "Concat")
    return [name for name in (node.input if whole else node.input[:1]) if name]


def _may_follow(graph: Graph, node: onnx.NodeProto) -> bool:
    """Return whether a node of a kind that follows has a form that does."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in MOVES | ARITHMETIC or not node.input:
        return False
    attrs = attributes_of(node)
    if any(name in graph.initializers for name in operands(graph, node)):
        return False
    check = _CHECKS.get(node.op_type)
    return check is None or check(graph, node, attrs)


def _constant_bounds(graph: Graph, node: onnx.NodeProto, attrs: dict[str, object]) -> bool:
    return all(name in graph.initializers for name in node.input[1:] if name)


def _pads_zeros(graph: Graph, node: onnx.NodeProto, attrs: dict[str, object]) -> bool:
    if attrs.get("mode", b"constant") != b"constant":
        return False
    value = graph.array(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    return len(node.input) < 3 or not node.input[2] or (value is not None and not value.any())


def _copies_pixels(graph: Graph, node: onnx.NodeProto, attrs: dict[str, object]) -> bool:
    return attrs.get("mode", b"nearest") == b"nearest"


_CHECKS: dict[str, Callable[[Graph, onnx.NodeProto, dict[str, object]], bool]] = {
    "Clip": _constant_bounds, "Pad": _pads_zeros, "Resize": _copies_pixels,
    "MaxPool": lambda graph, node, attrs: len(node.output) == 1,
    "Dropout": lambda graph, node, attrs: len(node.output) == 1 and len(node.input) == 1,
}  # fmt: skip


def _quantize_behind_moves(
    graph: Graph, candidates: list[onnx.NodeProto], wanted: dict[str, None], ends: set[str]
) -> None:
    """Where a layer's result is moved before it becomes integers, let it become integers first."""
    for node in reversed(candidates):
        moved = node.op_type in MOVES and any(name in wanted for name in node.output)
        if moved and (node.input[0] in ends or _is_moved_end(graph, node.input[0], ends)):
            wanted[node.input[0]] = None


def _is_moved_end(graph: Graph, name: str, ends: set[str]) -> bool:
    while name not in ends:
        node = graph.producers.get(name)
        if node is None or node.op_type not in MOVES:
            return False
        name = node.input[0]
    return True


def _follow(graph: Graph, candidates: list[onnx.NodeProto], plan: Plan, wanted: dict[str, None]) -> None:
    """Quantize nodes that read integers only, in the order of the graph."""
    for node in candidates:
        if not all(name in wanted for name in operands(graph, node)):
            continue
        for name in node.output:
            end = name if node.op_type in MOVES else after_activations(graph, name)
            plan.followers[end] = node
            wanted[end] = None


def _leave_useless(graph: Graph, plan: Plan, wanted: dict[str, None]) -> None:
    """Leave followers in float whose results nothing reads as integers, from the last to the first."""
    needed = {layer.data for layer in plan.layers} | {name for node in plan.computed for name in node.input}
    for end, node in reversed(list(plan.followers.items())):
        live = any(other in needed for other in node.output) or end in needed
        if live:
            needed.update(operands(graph, node))
            continue
        del plan.followers[end]
        if not any(layer.end == end for layer in plan.layers):
            del wanted[end]


def _reads_integers(graph: Graph, node: onnx.NodeProto, plan: Plan) -> bool:
    return any(name in plan.integer_ends for name in node.input)


def _share(plan: Plan) -> None:
    for end, node in plan.followers.items():
        if node.op_type in MOVES:
            plan.shared.append((node.input[0], end))
        elif node.op_type == "Concat":
            plan.concatenations.append((*node.input, end))
