"""``from_pytorch``: a TorchScript module becomes an exported program, and that a Relay module."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function, Tuple, Var
from tilewright.relay.frontend.pytorch.custom import CustomConverter, CustomOperators
from tilewright.relay.frontend.pytorch.evaluator import Custom, Evaluator
from tilewright.relay.frontend.pytorch.inputs import Examples, leaves, parse_infos
from tilewright.relay.frontend.pytorch.mirror import Mirror
from tilewright.relay.frontend.pytorch.values import Known, as_tensors
from tilewright.relay.frontend.torch import from_exported_program
from tilewright.relay.frontend.torch.logs import first_line, kept_quiet
from tilewright.relay.visitor import substitute
from tilewright.runtime.ndarray import NDArray

_NUMBERS: dict[type, torch.dtype] = {bool: torch.bool, int: torch.int64, float: torch.float32}


class _Program(torch.nn.Module):
    """The graph as the forward of a module, for tracing."""

    def __init__(
        self, script: Any, graph: Any, numbers: Sequence[bool], custom: Mapping[str, Custom], keep_weights: bool
    ) -> None:
        super().__init__()
        self._graph, self._numbers, self._has_self = graph, numbers, isinstance(script, torch.jit.ScriptModule)
        self.module = Mirror(script) if self._has_self else torch.nn.Module()
        self.evaluator = Evaluator(custom)
        text = str(graph)
        self._reshapes = any(kind in text for kind in _RESHAPED_IN_PLACE)

    def _own(self, value: Any) -> Any:
        """Return a copy of an input whose shape the graph may change, which torch.export does not allow."""
        return value.clone() if self._reshapes and isinstance(value, torch.Tensor) else value

    def forward(self, *inputs: Any) -> Any:
        """Return the outputs of the graph as a tuple of tensors; the evaluator notes how they nest."""
        given = [x.item() if number else self._own(x) for x, number in zip(inputs, self._numbers, strict=True)]
        result = self.evaluator.run(self._graph, [self.module, *given] if self._has_self else given)
        found: list[torch.Tensor] = []
        self.evaluator.structure = _taken_apart(result, found)
        return tuple(found)


_RESHAPED_IN_PLACE = ("aten::unsqueeze_", "aten::squeeze_", "aten::transpose_", "aten::t_", "aten::resize_")


def _taken_apart(value: Any, found: list[torch.Tensor]) -> Any:
    """Append the tensors in ``value``; return its structure, with the place of each tensor."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return tuple(_taken_apart(item, found) for item in value)
    found.append(_tensor(value))
    return len(found) - 1


def _tensor(value: Any) -> torch.Tensor:
    known, value = isinstance(value, Known), as_tensors(value)
    if isinstance(value, torch.Tensor):
        return value.clone() if known else value  # torch.export loses constants that are results
    if isinstance(value, torch.SymInt):
        return torch.scalar_tensor(value, dtype=torch.int64)
    if type(value) not in _NUMBERS:
        raise TilewrightError(f"the TorchScript module returns a {type(value).__name__}; it can return tensors")
    return torch.full((), value, dtype=_NUMBERS[type(value)])


def import_script(
    script_module: Any,
    input_infos: Sequence[Any],
    custom_convert_map: Mapping[str, CustomConverter],
    default_dtype: str,
    friendly: bool,
    keep_quantized_weight: bool,
) -> tuple[IRModule, dict[str, NDArray]]:
    """Import a module or function of TorchScript, see ``from_pytorch``."""
    graph = _inlined(script_module)
    has_self = isinstance(script_module, torch.jit.ScriptModule)
    values = list(graph.inputs())[1 if has_self else 0 :]
    infos = parse_infos(values, input_infos)
    examples = Examples(default_dtype)
    made = [examples.of(info, value.type()) for info, value in zip(infos, values, strict=True)]
    numbers = [value.type().kind() in ("IntType", "FloatType", "BoolType") for value in values]
    with CustomOperators(custom_convert_map) as custom:
        traced = _Program(script_module, graph, numbers, custom.calls, keep_quantized_weight)
        program = _exported(traced, tuple(m[0] for m in made), tuple(m[1] for m in made))
        mod, params = from_exported_program(program)
    return _finished(mod, params, examples.names, traced.evaluator.structure, friendly)


def _inlined(script_module: Any) -> Any:
    """Return a copy of the graph in which the methods of submodules stand in place of their calls."""
    if not isinstance(script_module, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        raise TilewrightError(
            f"from_pytorch takes what torch.jit.trace or torch.jit.script gave, not a {type(script_module).__name__}; "
            "relay.frontend.from_exported_program takes modules as they are"
        )
    graph = script_module.graph.copy()
    torch._C._jit_pass_inline(graph)
    return graph


def _exported(traced: _Program, inputs: tuple[Any, ...], dynamic: tuple[Any, ...]) -> Any:
    any_dynamic = any(found for found in leaves(dynamic) if found)
    try:
        with torch.no_grad(), kept_quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(
                traced, inputs, dynamic_shapes={"inputs": dynamic} if any_dynamic else None, strict=False
            )
    except TilewrightError:
        raise
    except Exception as error:
        where = "".join(f" {note}" for note in getattr(error, "__notes__", ())[:1])
        raise TilewrightError(f"the TorchScript module cannot be traced:{where}: {first_line(error)}") from error


def _finished(
    mod: IRModule, params: Mapping[str, NDArray], names: Sequence[str], structure: Any, friendly: bool
) -> tuple[IRModule, dict[str, NDArray]]:
    """Return the module with the user's names, and with its results nested as the TorchScript module returns them."""
    main = mod["main"]
    assert isinstance(main, Function)
    given = dict(zip((p.name_hint for p in main.params if p.name_hint not in params), names, strict=True))
    for name in params:
        given[name] = _name_of_parameter(name, friendly)
    replaced = {p: Var(given[p.name_hint], p.type_annotation) for p in main.params}
    body = _nested(substitute(main.body, replaced), structure)
    made = IRModule.from_expr(Function([replaced[p] for p in main.params], body))
    return made, {given[name]: value for name, value in params.items()}


def _name_of_parameter(name: str, friendly: bool) -> str:
    plain = name.removeprefix("module.")
    return plain.replace(".", "_") if friendly else plain


def _nested(body: Any, structure: Any) -> Any:
    if structure == 0 and not isinstance(body, Tuple):
        return body
    fields = list(body.fields) if isinstance(body, Tuple) else [body]

    def build(part: Any) -> Any:
        return Tuple([build(item) for item in part]) if isinstance(part, tuple) else fields[part]

    return build(structure)
