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
# What passes float32 on: between two operators that compute in it, a result is not rounded to half precision.
_PASSES_FLOAT32 = frozenset((
    "Add", "AveragePool", "Clip", "Concat", "Div", "Erf", "Flatten", "Gelu", "GlobalAveragePool", "GlobalMaxPool",
    "Identity", "LeakyRelu", "MaxPool", "Mul", "Relu", "Reshape", "Sigmoid", "Softmax", "Sub", "Tanh", "Transpose",
    "Where",
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
            registered = _widened(function, weights) if in_float32 else function
            if not in_float32 and not domain and op_type in _PASSES_FLOAT32:
                registered = _passing(function)
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


def _passing(function: Converter) -> Converter:
    widened = _widened(function, ())
    return lambda ctx: (widened if len(ctx.node.output) == 1 and ctx.reads_rounded else function)(ctx)


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
