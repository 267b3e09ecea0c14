"""Compilation of a model to a runtime module: the work behind ``tilewright.compile``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.ir.collection import rare_collections
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.ir.type import tensors_of
from tilewright.model.options import BuildOptions
from tilewright.relay import build_module
from tilewright.relay.backend.needs import Needs
from tilewright.relay.backend.vm_specialize import OPTION as SPECIALIZE
from tilewright.relay.budget import in_budget
from tilewright.relay.frontend import import_model
from tilewright.relay.function_attributes import OUTPUT_NAMES, STATE_INPUTS
from tilewright.relay.transform.precision.halve_weights import precision_config
from tilewright.relay.type_infer import infer_module
from tilewright.runtime.module import Module
from tilewright.runtime.state import keep_state
from tilewright.topi.cpu.model.float_tiles import matmul_precision_config

if TYPE_CHECKING:
    from tilewright.relay.backend.progress import BuildReport


def build_model(
    model: Any,
    target: Any,
    options: BuildOptions,
    records: str | os.PathLike[str] | None,
    of_torch: Mapping[str, Any],
) -> tuple[Module, BuildReport]:
    """Return the module of a model, and what compiling did; arguments as ``tilewright.compile`` has them.

    ``of_torch`` has those that are for a ``torch.nn.Module``, by name.
    """
    config = dict(options.config or {}) | precision_config(options.precision, options.keep)
    config |= matmul_precision_config(options.matmul_precision)
    if options.specialize:
        config[SPECIALIZE] = ";".join(options.specialize)
    tuned = ApplyHistoryBest(str(records)) if records is not None else contextlib.nullcontext()
    with tuned, PassContext(opt_level=options.opt_level, config=config), in_budget(), rare_collections():
        mod, weights = _imported(model, options.input_shapes, options.dims, of_torch)
        weights, state = weights_and_state(mod, weights)
        constants = {**weights, **(options.params or {})}
        Needs(mod, constants, options.precision).warn_of_memory(in_process=True)
        built = build_module.build(_with_names(mod), target=target, params=constants, executor=options.executor)
    keep_state(built.module, state)
    return built.module, built.build_report


def weights_and_state(mod: IRModule, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters that are constants, and the first values of those that the model keeps from run to run."""
    state = {name: params[name] for name in STATE_INPUTS.get(mod) or ()}
    return {name: value for name, value in params.items() if name not in state}, state


def _imported(
    model: Any,
    input_shapes: Mapping[str, Sequence[int | str]] | None,
    dims: Mapping[str, Any] | None,
    of_torch: Mapping[str, Any],
) -> tuple[IRModule, Mapping[str, Any]]:
    """Return a Relay module, and arrays for its parameters."""
    if isinstance(model, IRModule):
        if input_shapes or dims or any(value is not None for value in of_torch.values()):
            raise TypeError("a Relay module states its shapes: input_shapes and dims are for models that are imported")
        return model, {}
    if isinstance(model, bytes):
        from tilewright.relay.frontend.onnx.loading import model_of_bytes  # loads onnx, which others do without

        return import_model(model_of_bytes(model), input_shapes, dims=dims)
    return import_model(model, input_shapes, dims=dims, **of_torch)


def _with_names(mod: IRModule) -> IRModule:
    """Return a module that names its outputs, so that the library describes them."""
    if OUTPUT_NAMES.has(mod):
        return mod
    count = len(list(tensors_of(infer_module(mod)["main"].body.checked_type)))
    return mod.with_attr(OUTPUT_NAMES.key, [f"output_{i}" for i in range(count)])
