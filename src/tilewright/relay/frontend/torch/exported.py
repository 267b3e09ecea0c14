"""``from_exported_program``: programs of torch.export, modules, and ``.pt2`` files as Relay modules."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.relay.budget import in_budget
from tilewright.relay.expr import Function, Tuple, Var
from tilewright.relay.frontend.torch import scalars
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.decompositions import decompositions
from tilewright.relay.frontend.torch.dtypes import TorchImportError, as_array
from tilewright.relay.frontend.torch.graph import GraphImporter, tensors_of, unconverted, unsupported_operators
from tilewright.relay.frontend.torch.logs import first_line, kept_quiet
from tilewright.relay.frontend.torch.symbols import Symbols
from tilewright.relay.function_attributes import OUTPUT_NAMES, STATE_INPUTS
from tilewright.runtime import ndarray as nd

_OF_NO_VALUE = (OutputKind.TOKEN,)
_PARAMETERS = (InputKind.PARAMETER, InputKind.BUFFER)


@in_budget()
def import_program(
    source: Any,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    dims: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, nd.NDArray]]:
    """Import an exported program, the path of one, or a module with example inputs; see ``from_exported_program``."""
    program = exported(source, example_inputs, dynamic_shapes)
    names = dimension_names(program, dynamic_shapes)
    program = _decomposed(program)
    return ProgramImporter(program, Symbols(names, dims, program.range_constraints)).import_program()


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    """Return a program of the operators that are converted; torch runs the program on fake tensors for it."""
    with kept_quiet():
        try:
            return program.run_decompositions(decompositions())
        except Exception as error:
            _, found, place = str(error).partition("While executing ")
            where = f"; in {place.splitlines()[0]}" if found else ""
            raise TorchImportError(
                f"torch finds an operator of the program wrong: {first_line(error)}{where}"
            ) from error


def exported(source: Any, example_inputs: Any = None, dynamic_shapes: Any = None) -> ExportedProgram:
    """Return an exported program as it is, read from a file, or exported from a module."""
    if isinstance(source, (str, os.PathLike)):
        return _loaded(source)
    if isinstance(source, ExportedProgram):
        return source
    if isinstance(source, torch.nn.Module):
        return _exported_module(source, example_inputs, dynamic_shapes)
    raise TorchImportError(
        f"expected a torch.nn.Module, a torch.export.ExportedProgram or a .pt2 file, not a {type(source).__name__}"
    )


def _loaded(path: Any) -> ExportedProgram:
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise TorchImportError(f"{name}: there is no such file")
    _check_archive(name)
    with kept_quiet() as logged:
        try:
            return torch.export.load(name)
        except Exception as error:
            why = first_line(_root(logged[0] if logged else error))
            raise TorchImportError(f"{name}: no program of torch.export.save, or damaged: {why}") from error


def _root(error: BaseException) -> BaseException:
    """Return the error that was raised first."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


_PROGRAMS = ("model.json", "serialized_exported_program.json")  # in archives of today's torch, and of older ones


def _check_archive(path: str) -> None:
    """Refuse what is no archive, and archives of torch that hold something else."""
    cut = f"{path}: no program of torch.export.save, or cut off"
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise TorchImportError(f"{cut}: it is no archive of files ({first_line(error)})") from error
    if not entries or min(entry.header_offset for entry in entries):
        raise TorchImportError(f"{cut}: its list of files is not its own")
    files = {entry.filename.rpartition("/")[2] for entry in entries}
    if files & set(_PROGRAMS):
        return
    if "constants.pkl" in files:
        raise TorchImportError(
            f"{path}: it holds a TorchScript module; relay.frontend.from_pytorch(torch.jit.load(path), input_infos) "
            "imports that"
        )
    raise TorchImportError(
        f"{path}: it holds {'an object of torch.save' if 'data.pkl' in files else 'no program'}; expected what "
        "torch.export.save(torch.export.export(module, inputs), path) writes"
    )


def _exported_module(module: torch.nn.Module, example_inputs: Any, dynamic_shapes: Any) -> ExportedProgram:
    name = type(module).__name__
    in_training = TorchImportError(f"the module {name} is in training mode; call .eval() before compiling it")
    if module.training and any(m.training and _acts_in_training(m) for m in module.modules()):
        raise in_training
    if example_inputs is None:
        raise TorchImportError(
            f"the module {name} needs example inputs: tilewright.compile(module, example_inputs=(x,))"
        )
    args, kwargs = _examples(example_inputs)
    for value in tensors_of([list(args), kwargs]):
        if isinstance(value, np.ndarray | nd.NDArray):
            raise TorchImportError(f"example inputs of a module are tensors of torch, not a {type(value).__name__}")
    for tensor in (*module.parameters(), *module.buffers(), *filter(_is_tensor, tensors_of([list(args), kwargs]))):
        if tensor.device.type != "cpu":
            raise TorchImportError(
                f"the module {name} or an example input is on the device {tensor.device}; move both to the CPU: .cpu()"
            )
    try:
        with torch.no_grad(), kept_quiet():
            program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        why = str(error).partition("The error above occurred")[0].strip() or type(error).__name__
        raise TorchImportError(f"torch.export does not export the module {name}: {why}") from error
    if module.training and any(map(_trains, program.graph.nodes)):
        raise in_training
    return program


def _acts_in_training(module: torch.nn.Module) -> bool:
    """Return whether a module computes something else in training."""
    own = type(module).__name__
    return "Dropout" in own or "BatchNorm" in own or getattr(module, "dropout", 0) not in (0, 0.0, None, False)


def _trains(node: torch.fx.Node) -> bool:
    """Return whether an operator computes what it does in training alone, such as ``F.dropout`` with ``training``."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    given = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False)) | node.kwargs
    trains = any(given.get(name) is True for name in ("train", "training"))
    return (trains and given.get("p", given.get("dropout", 1.0)) != 0) or bool(given.get("dropout_p", 0.0))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _examples(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments: a tensor, a tuple, a mapping, or a tuple and a mapping."""
    if isinstance(given, torch.Tensor):
        return (given,), {}
    if isinstance(given, Mapping):
        return (), dict(given)
    if isinstance(given, Sequence) and not isinstance(given, str):
        return tuple(given), {}
    raise TorchImportError(f"example inputs are a tuple of tensors, or a mapping by name, not a {type(given).__name__}")


def dimension_names(program: ExportedProgram, dynamic_shapes: Any) -> dict[str, str]:
    """Return the names that the user gave dimensions, by torch's symbols."""
    found: dict[str, str] = {}
    for node in program.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        for extent in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(extent, torch.SymInt) and extent.node.expr.is_Symbol:
                env = extent.node.shape_env
                for source in env.var_to_sources.get(extent.node.expr, ()) if env is not None else ():
                    name = env.source_name_to_debug_name.get(source.name() if callable(source.name) else source.name)
                    if name and name.isidentifier():
                        found.setdefault(str(extent.node.expr), name)
    return found


class ProgramImporter:
    """Converter of one program: its signature says what its placeholders and outputs are."""

    def __init__(self, program: ExportedProgram, symbols: Symbols) -> None:
        self.program = program
        self.importer = GraphImporter(symbols)
        self._state: dict[str, Var] = {}

    def import_program(self) -> tuple[IRModule, dict[str, nd.NDArray]]:
        """Return the module, whose outputs have names, and its parameters."""
        graph = self.program.graph_module
        if missing := unconverted(graph):
            raise unsupported_operators(missing)
        values = [self._placeholder(node) for node in graph.graph.nodes if node.op == "placeholder"]
        self.importer.symbols.check_limits()
        outputs = tensors_of(self.importer.run(graph, values))
        named = self._outputs(outputs)
        body = next(iter(named.values())) if len(named) == 1 else Tuple(list(named.values()))
        used = self.importer.params_in(body)
        params = {v.name_hint: self.importer.params[v.name_hint] for v in used}
        inputs = [v for name, v in self.importer.inputs.items() if name not in self._state]
        module = IRModule.from_expr(Function([*inputs, *self._state.values(), *used], body))
        if self._state:
            module = module.with_attr(STATE_INPUTS.key, list(self._state))
            params |= {name: as_array(self._tensor(name), f"the buffer {name!r}") for name in self._state}
        return module.with_attr(OUTPUT_NAMES.key, list(named)), params

    def _placeholder(self, node: torch.fx.Node) -> Any:
        spec = next(s for s in self.program.graph_signature.input_specs if _name(s.arg) == node.name)
        if spec.kind in _PARAMETERS:
            if self._is_mutated(spec.target):
                held = self.importer.input(str(spec.target), node.meta["val"])
                self._state[held.name_hint] = held
                return held
            return self._held(spec, self._tensor(spec.target))
        if spec.kind is InputKind.CONSTANT_TENSOR:
            return self.importer.constant(str(spec.target), self.program.constants[spec.target])
        if spec.kind is InputKind.TOKEN:
            return None
        if spec.kind is InputKind.CUSTOM_OBJ:
            raise UnsupportedError(f"the program holds an object of a class of C++, {spec.target!r}")
        value = node.meta.get("val")
        if isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat)):
            return scalars.of_input(self.importer, node.name, value)
        return getattr(spec.arg, "value", value)

    def _held(self, spec: Any, tensor: torch.Tensor) -> RelayExpr:
        """Return a parameter or buffer; a small buffer of integers is a constant, which decides shapes and indices."""
        if spec.kind is InputKind.BUFFER and not tensor.dtype.is_floating_point:
            return self.importer.constant(str(spec.target), tensor)
        return self.importer.param(str(spec.target), tensor)

    def _is_mutated(self, target: str) -> bool:
        return target in self.program.graph_signature.buffers_to_mutate.values()

    def _tensor(self, target: str) -> torch.Tensor:
        held = self.program.state_dict
        return held[target] if target in held else self.program.constants[target]

    def _outputs(self, values: Sequence[Any]) -> dict[str, RelayExpr]:
        context = TorchContext(self.importer, next(iter(self.program.graph.nodes)))
        named: dict[str, RelayExpr] = {}
        for spec, value in zip(self.program.graph_signature.output_specs, values, strict=True):
            made = scalars.as_tensor(context, value)
            if spec.kind in _OF_NO_VALUE or not isinstance(made, RelayExpr):
                continue
            name = _name(spec.arg) if spec.kind is OutputKind.USER_OUTPUT else f"{spec.target}.next"
            named[name if name not in named else f"{name}_{len(named)}"] = made
        if not named:
            raise TorchImportError("the program returns no tensor")
        return named


def _name(arg: Any) -> str:
    return str(getattr(arg, "name", ""))
