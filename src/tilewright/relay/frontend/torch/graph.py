"""Conversion of FX graphs of ATen's operators.

``GraphImporter`` holds what is common to a graph and those nested in it; ``GraphImporter.run`` converts one for the
values of its placeholders, and returns what it returns. ``function_of`` makes a Relay function of a whole graph.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from tilewright.ir.budget import BudgetError, count_nodes
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.span import SourceName, Span
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Function, Tuple, TupleWrapper, Var, comes_from, const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dynamic import known_dims
from tilewright.relay.frontend.onnx.parts import EAGER_FOLD_ELEMENTS, PartsHost
from tilewright.relay.frontend.torch import converters, scalars
from tilewright.relay.frontend.torch.complex_numbers import Complex, computes_complex
from tilewright.relay.frontend.torch.context import TorchContext, described, place_of
from tilewright.relay.frontend.torch.dtypes import TorchImportError, as_array, dtype_name, real_name
from tilewright.relay.frontend.torch.registry import UNUSED, find_converter, reason_of_refusal
from tilewright.relay.frontend.torch.symbols import Symbols
from tilewright.runtime import ndarray as nd
from tilewright.runtime.ndarray import numpy_view

_FAMILIES = converters.__all__  # whose import registers converters


class GraphImporter(PartsHost):
    """Symbols, inputs and parameters of a program, which converters ask for."""

    def __init__(self, symbols: Symbols | None = None) -> None:
        super().__init__()
        self.symbols = symbols or Symbols()

    # ---- inputs and parameters ----

    def input(self, name: str, value: Any) -> Var:
        """Return the variable of an input like torch's fake tensor or symbolic integer ``value``."""
        if isinstance(value, torch.Tensor):
            type_ = TensorType(
                [self.symbols.declare(d, f"{name}_{i}") for i, d in enumerate(value.shape)], dtype_name(value.dtype)
            )
        else:
            type_ = TensorType((), "float64" if isinstance(value, (float, torch.SymFloat)) else "int64")
        made = typed(Var(name, type_))
        assert isinstance(made, Var)
        self.inputs[name] = made
        return made

    def param(self, name: str, tensor: torch.Tensor) -> Any:
        """Return the variable of a parameter; of complex numbers those of its parts."""
        if tensor.is_complex():
            return Complex(self.param(f"{name}.real", tensor.real), self.param(f"{name}.imag", tensor.imag))
        data = as_array(tensor, f"the parameter {name!r}")
        return self.param_var(name, data)

    def constant(self, name: str, tensor: torch.Tensor) -> Any:
        """Return a tensor that the program holds: as a constant where it is small, else as a parameter."""
        if tensor.is_complex():
            return Complex(self.constant(f"{name}.real", tensor.real), self.constant(f"{name}.imag", tensor.imag))
        if tensor.numel() > EAGER_FOLD_ELEMENTS:
            return self._param_vars.get(name) or self.param(name, tensor)
        return typed(const(np.array(numpy_view(as_array(tensor, f"the constant {name!r}")))))

    # ---- graphs ----

    def run(self, module: torch.fx.GraphModule, values: Sequence[Any]) -> Any:
        """Return what a graph returns for values of its placeholders: tensors, numbers, sizes, None, lists of them."""
        given = iter(values)
        env: dict[torch.fx.Node, Any] = {}
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(given)
            elif node.op == "get_attr":
                env[node] = self._attribute(module, str(node.target))
            elif node.op == "output":
                return _mapped(node.args[0], env)
            else:
                env[node] = self._converted(node, env)
        raise TorchImportError("the graph has no output node")

    def _attribute(self, module: torch.fx.GraphModule, target: str) -> Any:
        found = operator.attrgetter(target)(module)
        return self.constant(target, found) if isinstance(found, torch.Tensor) else found

    def _converted(self, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any]) -> Any:
        count_nodes(1, lambda: described(node))
        args, kwargs = _mapped(node.args, env), _mapped(node.kwargs, env)
        if node.target is operator.getitem and isinstance(args[0], (list, tuple)):
            return _selected(node, args[0], args[1])
        ctx = TorchContext(self, node)
        with errors_of(node), comes_from(Span(SourceName(node.name))):
            if not isinstance(node.target, torch._ops.OpOverload | torch._ops.HigherOrderOperator):
                return scalars.convert(ctx, args)
            convert = find_converter(*_named(node.target), computes_complex(node))
            if convert is None:
                raise unsupported_operators([node])
            made = convert(ctx, *_arguments(node.target, args, kwargs))
            return self._as_stated(ctx, made, node.meta.get("val"), _all_constant(self, args))

    def _as_stated(self, ctx: TorchContext, made: Any, stated: Any, constant: bool) -> Any:
        """Return results in the data types and dimensions that torch states for them."""
        if isinstance(made, TupleWrapper):
            made = [made[i] for i in range(len(made))]
        if isinstance(made, (list, tuple)):
            known = stated if isinstance(stated, (list, tuple)) and len(stated) == len(made) else [None] * len(made)
            return [self._as_stated(ctx, m, s, constant) for m, s in zip(made, known, strict=True)]
        if isinstance(made, Complex):
            return Complex(*(self._as_stated(ctx, part, stated, constant) for part in (made.real, made.imag)))
        if not isinstance(made, RelayExpr):
            return made
        made = typed(made)
        if isinstance(stated, torch.Tensor):
            made = self._checked(ctx, made, stated)
        return self.folded(made) if constant else made

    def _checked(self, ctx: TorchContext, made: RelayExpr, stated: torch.Tensor) -> RelayExpr:
        dtype = real_name(stated.dtype)
        made = ctx.cast(made, dtype) if ctx.dtype(made) != dtype else made
        own, dims = ctx.dims(made), [self.symbols.dim(d) for d in stated.shape]
        if len(own) != len(dims):
            ctx.fail(f"its result has {len(own)} dimensions, {own}; torch states {dims}")
        return typed(known_dims(made, dims))


def _selected(node: torch.fx.Node, results: Sequence[Any], index: int) -> Any:
    """Return one of several results, which must be there where something reads it."""
    found = results[index]
    if found is None and node.users and isinstance(node.meta.get("val"), torch.Tensor):
        source = node.all_input_nodes[0]
        raise UnsupportedError(f"{described(source)}: result {index}, which the graph reads, is not computed")
    return found


def _all_constant(importer: GraphImporter, args: Any) -> bool:
    if isinstance(args, (list, tuple)):
        return all(_all_constant(importer, a) for a in args)
    if isinstance(args, Complex):
        return _all_constant(importer, (args.real, args.imag))
    if isinstance(args, torch.nn.Module):
        return False
    return not isinstance(args, RelayExpr) or importer.is_constant_expr(args)


def _mapped(value: Any, env: Mapping[torch.fx.Node, Any]) -> Any:
    if isinstance(value, torch.fx.Node):
        return env[value]
    if isinstance(value, (list, tuple)):
        return [_mapped(v, env) for v in value]
    if isinstance(value, dict):
        return {k: _mapped(v, env) for k, v in value.items()}
    return value


def _named(target: Any) -> tuple[str, str]:
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name, target._overloadname
    return f"higher_order::{target.name()}", "default"


def _arguments(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments in the order of the schema, with its defaults."""
    if not isinstance(target, torch._ops.OpOverload):
        return [*args, *kwargs.values()]
    found = []
    for place, argument in enumerate(target._schema.arguments):
        if argument.name in UNUSED:
            continue
        if place < len(args):
            found.append(args[place])
        else:
            default = argument.default_value if argument.has_default_value() else None
            found.append(kwargs.get(argument.name, default))
    return found


def nodes_in(module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """Return the nodes of a graph and of those nested in it."""
    for inner in module.modules():
        if isinstance(inner, torch.fx.GraphModule):
            yield from inner.graph.nodes


def unconverted(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Return the nodes whose operators have no converter."""
    return [
        node for node in nodes_in(module)
        if node.op == "call_function" and not scalars.handles(node.target)
        and (not isinstance(node.target, torch._ops.OpOverload | torch._ops.HigherOrderOperator)
             or find_converter(*_named(node.target), computes_complex(node)) is None)
    ]  # fmt: skip


def unsupported_operators(nodes: Iterable[torch.fx.Node]) -> UnsupportedError:
    """Return the error that lists operators without a converter, with their places in the user's source."""
    missing: dict[str, list[str]] = {}
    for node in nodes:
        missing.setdefault(str(node.target), []).append(place_of(node) or node.name)
    lines = []
    for name, places in sorted(missing.items()):
        node = next(n for n in nodes if str(n.target) == name)
        target = node.target
        known = isinstance(target, torch._ops.OpOverload | torch._ops.HigherOrderOperator)
        reason = reason_of_refusal(*_named(target)) if known else None
        if known and computes_complex(node):
            reason = "complex numbers; write real and imaginary parts as two tensors"
        shown = list(dict.fromkeys(places))
        more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
        lines.append(f"  {name}{f' ({reason})' if reason else ''}: " + "; ".join(shown[:5]) + more)
    return UnsupportedError("the program uses operators that are not supported:\n" + "\n".join(lines))


@contextmanager
def errors_of(node: torch.fx.Node) -> Iterator[None]:
    """Name the operator and its place in errors that arise in the block."""
    try:
        yield
    except BudgetError:
        raise
    except TilewrightError as error:
        what = described(node)
        if what in str(error) or "\n  " in str(error):
            raise
        kind = UnsupportedError if isinstance(error, UnsupportedError) else TorchImportError
        raise kind(f"{what}: {error}") from None
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        raise TorchImportError(f"{described(node)}: its operands do not fit: {error}") from error


def tensors_of(value: Any) -> list[Any]:
    """Return the values in nested lists, in their order."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in tensors_of(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in tensors_of(item)]
    return [value]


def function_of(
    module: torch.fx.GraphModule,
    params: Mapping[str, torch.Tensor] | None = None,
    *,
    symbols: Symbols | None = None,
) -> tuple[Function, dict[str, nd.NDArray], list[Any]]:
    """Convert a graph of ATen's operators, each with torch's fake result in ``node.meta["val"]``.

    Args:
        module: the graph, functional: nothing is written in place.
        params: tensors for placeholders by name; the other placeholders, tensors and symbolic integers, are inputs.
        symbols: the named dimensions; by default those of the symbols of the inputs' shapes.

    Returns:
        The function: inputs in the order of the placeholders, then parameters; a tensor, or a tuple of all tensors that
        the graph returns. The parameters by name. What the graph returns, in order: None for a tensor that the
        function returns, or a value that is known while compiling.
    """
    if missing := unconverted(module):
        raise unsupported_operators(missing)
    importer = GraphImporter(symbols)
    values = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            bound = (params or {}).get(node.name)
            value = node.meta.get("val")
            if bound is not None:
                values.append(importer.param(node.name, bound))
            elif isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, int, float)):
                values.append(scalars.of_input(importer, node.name, value))
            else:
                values.append(value)
    outputs = tensors_of(importer.run(module, values))
    context = TorchContext(importer, next(iter(module.graph.nodes)))
    found = [scalars.as_tensor(context, v) for v in outputs]
    tensors = [v for v in found if isinstance(v, RelayExpr)]
    body = tensors[0] if len(tensors) == 1 else Tuple(tensors)
    used = importer.params_in(body)
    function = Function([*importer.inputs.values(), *used], body)
    arrays = {v.name_hint: importer.params[v.name_hint] for v in used}
    return function, arrays, [None if isinstance(v, RelayExpr) else v for v in found]
