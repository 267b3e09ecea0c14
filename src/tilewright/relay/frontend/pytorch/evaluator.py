"""A TorchScript graph run in Python, operator by operator, on tensors of torch.

``torch.export`` traces it: each operator of the graph becomes that operator of the exported program, and whatever is
known without the inputs' values (sizes, numbers, lists, constants, loops of known length) happens here, while tracing.
A branch or a loop that depends on values becomes ``torch.cond`` or ``while_loop``.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import traceback as fx_traceback

from tilewright.relay.frontend.pytorch import control, python_ops, quantized
from tilewright.relay.frontend.pytorch.mirror import Mirror
from tilewright.relay.frontend.pytorch.values import Known, Truth, as_tensors, is_known

Handler = Callable[["Evaluator", Any, list[Any]], Any]
Custom = Callable[[Any, Sequence[Any]], Any]

_DTYPES = {number: dtype for dtype, number in python_ops.SCALAR_TYPES.items()}
_NUMBERS = (
    "aten::item",
    "aten::Int",
    "aten::Float",
    "aten::ScalarImplicit",
    "aten::IntImplicit",
    "aten::FloatImplicit",
)
_FORMATS = {
    0: torch.contiguous_format,
    1: torch.preserve_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
}


# How TorchScript states places: of traced operators, and of scripted ones.
_PLACES = re.compile(r'^(\S.*)\((\d+)\): |^ *File "([^"]+)", line (\d+)', re.MULTILINE)


class Evaluator:
    """Runs a graph.

    Args:
        custom: what is called instead of operators, by kind such as ``"aten::relu"``: with the operator of torch and
            its arguments.
    """

    def __init__(self, custom: Mapping[str, Custom]) -> None:
        self._custom = custom
        self._numbers: dict[int, tuple[Any, torch.Tensor]] = {}
        self.structure: Any = None  # of what the graph returned: the places of tensors, in tuples

    def _attribute(self, module: Any, name: str) -> Any:
        """Return an attribute; note the number in a buffer of one element, such as a scale."""
        value = module.get(name)
        if isinstance(value, torch.Tensor) and name in module.numbers:
            self._numbers[id(value)] = (value, module.numbers[name])
        return value

    def run(self, graph: Any, arguments: Sequence[Any]) -> Any:
        """Return the value of a graph for arguments, the module first where the graph has one."""
        values = {value.debugName(): argument for value, argument in zip(graph.inputs(), arguments, strict=True)}
        results = self.block(graph, values)
        return results[0] if len(results) == 1 else tuple(results)

    def block(self, block: Any, values: dict[str, Any]) -> list[Any]:
        """Run the nodes of a graph or block; ``values`` has its inputs, and gets what they make. Return its outputs."""
        for node in block.nodes():
            self._node(node, values)
        return [values[value.debugName()] for value in block.outputs()]

    def _node(self, node: Any, values: dict[str, Any]) -> None:
        names = [value.debugName() for value in node.outputs()]
        if names and all(name in values for name in names) and node.kind() == "prim::GetAttr":
            return  # evaluated before a branch
        arguments = [values[value.debugName()] for value in node.inputs()]
        if node.kind() == "prim::If":
            results = control.branch(self, node, arguments[0], values)
        elif node.kind() == "prim::Loop":
            results = control.loop(self, node, arguments, values)
        else:
            result = self._value(node, arguments)
            single = len(names) == 1 and not node.kind().endswith("Unpack")
            results = [result] if single else list(result or ())
        values.update(zip(names, results, strict=True))

    def _value(self, node: Any, arguments: list[Any]) -> Any:
        kind: str = node.kind()
        try:
            if kind == "prim::Constant":
                return _constant(node)
            if kind == "prim::GetAttr":
                return self._attribute(arguments[0], node.s("name"))
            if kind in _NUMBERS and (found := self._numbers.get(id(arguments[0]))):
                arguments = [Known(found[1])]
            if quantized.concerns(kind, arguments):
                return quantized.evaluate(kind, arguments, lambda given: self._value(node, given))
            if kind in self._custom:
                positional, named = _arguments(node, as_tensors(arguments))
                return self._custom[kind](overload_of(node), [*positional, *named.values()])
            if kind in python_ops.STRUCTURE:
                return python_ops.STRUCTURE[kind](node, *arguments)
            if kind in python_ops.SCALAR and (isinstance(arguments[0], list) or not has_tensor(arguments)):
                return python_ops.SCALAR[kind](*arguments)
            if kind in python_ops.QUERY:
                return python_ops.QUERY[kind](*arguments)
            with _placed(node):
                return _call(node, arguments)
        except Exception as error:
            error.add_note(f"in TorchScript's operator {kind}{_place(node)}")
            raise


@contextmanager
def _placed(node: Any) -> Iterator[None]:
    """State where an operator stands in the user's source for what is traced in the block; messages name that place."""
    path, line = _source(node)
    with fx_traceback.preserve_node_meta():
        if path:
            code = linecache.getline(path, int(line)).strip() or node.kind()
            fx_traceback.set_stack_trace([f'File "{path}", line {line}, in forward\n    {code}'])
        yield


def _source(node: Any) -> tuple[str, str]:
    """Return the file and line of an operator: those of the user, where TorchScript also knows torch's own."""
    known: list[tuple[str, str]] = [(a or b, c or d) for a, c, b, d in _PLACES.findall(node.sourceRange())]
    own = [place for place in known if "/site-packages/torch/" not in place[0]]
    return next(iter(own or known), ("", ""))


def _constant(node: Any) -> Any:
    value = node.output().toIValue()
    if isinstance(value, torch.Tensor):
        return Known(value)  # those with elements are buffers of the mirror, see mirror.py
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _call(node: Any, arguments: list[Any]) -> Any:
    """Call an operator of torch; one whose tensors are all known is computed now."""
    positional, named = _arguments(node, arguments)
    operator = overload_of(node)
    tensors = [x for x in _flat([*positional, *named.values()]) if isinstance(x, (torch.Tensor, Known, Truth))]
    if tensors and is_known(tensors) and torch.Tag.nondeterministic_seeded not in operator.tags:
        return python_ops.folded(operator, positional, named)
    name = node.kind()
    if name in python_ops.OTHER_NAMES:
        return python_ops.OTHER_NAMES[name](*as_tensors(positional), **as_tensors(named))
    return operator(*as_tensors(positional), **as_tensors(named))


def overload_of(node: Any) -> Any:
    """Return the operator of torch that a node calls."""
    schema = torch._C.parse_schema(node.schema())
    space, name = schema.name.split("::")
    packet = getattr(getattr(torch.ops, space), name)
    return getattr(packet, schema.overload_name or "default")


def _arguments(node: Any, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and named arguments, with data types and layouts as torch's objects."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for declared, value in zip(torch._C.parse_schema(node.schema()).arguments, values, strict=True):
        converted = _converted(str(declared.real_type), value)
        if declared.kwarg_only:
            named[declared.name] = converted
        else:
            positional.append(converted)
    return positional, named


def _converted(kind: str, value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        if "ScalarType" in kind:
            return _DTYPES[value]
        if "MemoryFormat" in kind:
            return _FORMATS[value]
        if "Layout" in kind:
            return torch.strided
    return value


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, (list, tuple)):
        for value in values:
            yield from _flat(value)
    else:
        yield values


def has_tensor(arguments: Sequence[Any]) -> bool:
    """Return whether an argument, or an element of a list, is a tensor."""
    return any(isinstance(x, (torch.Tensor, Known, Truth)) for x in _flat(list(arguments)))


def _place(node: Any) -> str:
    path, line = _source(node)
    return f" at {path}:{line}" if path else ""


__all__ = ["Evaluator", "Mirror", "has_tensor", "overload_of"]
