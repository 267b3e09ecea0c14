"""Converters by ONNX operator and the opset from which each holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.expr import RelayExpr

if TYPE_CHECKING:
    from tilewright.relay.frontend.onnx.context import NodeContext

Inputs = Sequence[RelayExpr | None]
Converter = Callable[["NodeContext"], RelayExpr | Sequence[RelayExpr]]

_CONVERTERS: dict[tuple[str, str], list[tuple[int, Converter]]] = {}
# What is computed in float32, as ONNX Runtime computes files of halves. Rounded once, results are those of half
# precision, and what reads them unrounded errs less.
_ARITHMETIC = frozenset((
    "Add", "AveragePool", "BatchNormalization", "Div", "Erf", "Exp", "Gelu", "GlobalAveragePool", "GroupNormalization",
    "InstanceNormalization", "LRN", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "Mul", "PRelu", "Pow",
    "Reciprocal", "ReduceL1", "ReduceMean", "ReduceSum", "Sigmoid", "Softmax", "Softplus", "Sqrt", "Sub", "Tanh",
))  # fmt: skip
# What passes float32 on: between two operators that compute in it, a result is not rounded to half precision.
_PASSES_FLOAT32 = frozenset((
    "Abs", "Clip", "Concat", "Expand", "Flatten", "Gather", "GlobalMaxPool", "Identity", "Max", "MaxPool", "Min", "Neg",
    "Pad", "ReduceMax", "ReduceMin", "Relu", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze", "Where",
))  # fmt: skip
DEFAULT_DOMAINS = frozenset({"", "ai.onnx"})


def converter(
    *op_types: str, since: int = 1, domain: str = "", in_float32: bool = False, weights: Sequence[int] = ()
) -> Callable[[Converter], Converter]:
    """Register a converter for the ONNX operators ``op_types`` from opset ``since`` on.

    ``in_float32``: an operator that becomes several is computed in float32 where its inputs are float16 or bfloat16,
    and its results are rounded once; ``weights`` are inputs that Relay's operators widen themselves (ComputeInFloat32).
    """

    def register(function: Converter) -> Converter:
        for op_type in op_types:
            registered = function
            if in_float32:
                registered = _widened(function, weights)
            elif not domain and op_type in _ARITHMETIC:
                registered = _where(lambda ctx: ctx.is_half(0), function)
            elif not domain and op_type in _PASSES_FLOAT32:
                registered = _where(lambda ctx: ctx.reads_rounded, function)
            versions = _CONVERTERS.setdefault((domain, op_type), [])
            versions.append((since, registered))
            versions.sort(key=lambda item: item[0])
        return function

    return register


def _widened(function: Converter, weights: Sequence[int]) -> Converter:
    def convert(ctx: NodeContext) -> RelayExpr | Sequence[RelayExpr]:
        wide, dtype = ctx.in_float32(weights)
        if dtype is None:
            return function(ctx)
        made = function(wide)
        return [ctx.rounded(out, dtype) for out in made] if isinstance(made, Sequence) else ctx.rounded(made, dtype)

    return convert


def _where(widens: Callable[[NodeContext], bool], function: Converter) -> Converter:
    """Convert nodes of one result in float32 where ``widens``, others as they are."""
    widened = _widened(function, ())
    return lambda ctx: (widened if len(ctx.node.output) == 1 and widens(ctx) else function)(ctx)


def find_converter(domain: str, op_type: str, opset: int) -> Converter | None:
    """Return the converter of the newest version that is not newer than ``opset``."""
    domain = "" if domain in DEFAULT_DOMAINS else domain
    chosen = None
    for since, function in _CONVERTERS.get((domain, op_type), ()):
        if since <= opset:
            chosen = function
    return chosen


def supported_operators() -> list[str]:
    """Return the names of all ONNX operators that have a converter, sorted."""
    return sorted(f"{domain}.{name}" if domain else name for domain, name in _CONVERTERS)


def simple(**table: Any) -> None:
    """Register operators that map one to one: ``simple(Relu=relay.nn.relu)``."""
    for op_type, build in table.items():

        def convert(ctx: NodeContext, build: Any = build) -> RelayExpr:
            result: RelayExpr = build(*[ctx.input(i) for i in range(len(ctx.node.input))])
            return result

        converter(op_type)(convert)
