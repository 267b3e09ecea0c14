"""``tilewright.compile``: compilation of a model file, an ONNX model or a Relay module to a callable :class:`Model`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.ir.collection import rare_collections
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.ir.type import tensors_of
from tilewright.relay import build_module
from tilewright.relay.backend.executor_choice import AUTO
from tilewright.relay.backend.needs import Needs
from tilewright.relay.backend.vm_specialize import OPTION as SPECIALIZE
from tilewright.relay.budget import in_budget
from tilewright.relay.frontend import from_onnx, import_model
from tilewright.relay.frontend.onnx.loading import model_of_bytes
from tilewright.relay.function_attributes import OUTPUT_NAMES, STATE_INPUTS
from tilewright.relay.transform.precision.halve_weights import FLOAT32, precision_config
from tilewright.relay.type_infer import infer_module
from tilewright.runtime.model import Model as Model
from tilewright.runtime.model import load as load
from tilewright.runtime.state import keep_state
from tilewright.topi.cpu.model.float_tiles import HIGHEST, matmul_precision_config

if TYPE_CHECKING:
    from tilewright.runtime.device import Device
    from tilewright.target.target import Target


def compile(
    model: Any,
    example_inputs: Any = None,
    *,
    target: str | Target | Mapping[str, Any] = "llvm",
    dynamic_shapes: Any = None,
    params: Mapping[str, Any] | None = None,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    dims: Mapping[str, Any] | None = None,
    specialize: Sequence[str] = (),
    opt_level: int = 3,
    executor: str = AUTO,
    records: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
    precision: str = FLOAT32,
    keep: Sequence[str] = (),
    matmul_precision: str = HIGHEST,
    device: Device | None = None,
    threads: int | None = None,
    max_steps: int | None = None,
) -> Model:
    """Compile a model for this process; ``save`` of what is returned writes it to a library.

    Args:
        model: the path or the bytes of an ONNX file, an ``onnx.ModelProto``, a ``torch.nn.Module``, an
            ``ExportedProgram`` of torch.export or the path of its ``.pt2`` file, a Relay module, or what an installed
            front end takes (``relay.frontend.import_model``).
        example_inputs: of a ``torch.nn.Module``, its arguments: a tensor, a tuple, or a mapping by name.
        target: what to compile for, as ``relay.build`` takes it.
        dynamic_shapes: of a ``torch.nn.Module``, which dimensions are known at run time only, as
            ``torch.export.export`` takes them; ``torch.export.Dim("batch", min=1, max=64)`` names one and bounds it.
        params: arrays for parameters of a Relay module by name; they become constants.
        input_shapes: shapes of inputs by name, instead of the model's; a dimension is a number or a name.
        dims: what is known of named dimensions: a number, ``(least, largest)`` or ``(least, largest, multiple)``.
        specialize: choices of numbers for named dimensions that get kernels of their own, each such as
            ``"batch=1,seq=128"``.
        opt_level: which passes run: those of this level and below, from 0 to 3.
        executor: ``"graph"``, ``"vm"``, or ``"auto"`` for what the target or the model asks for.
        records: a file of tuning records.
        config: options of ``PassContext``.
        precision: what weights are kept in, ``"fp16"``, ``"bf16"``, ``"mixed"`` or ``"auto"`` (docs/precision.md).
        keep: names of nodes that stay float32 in another precision.
        matmul_precision: how float32 products are computed, ``"highest"``, ``"high"`` or ``"medium"``, as for
            ``torch.set_float32_matmul_precision`` (docs/precision.md).
        device: where the model runs; the CPU, or what it was compiled for.
        threads: as for :class:`Model`.
        max_steps: as for :class:`Model`.

    Raises:
        TilewrightError: the model is not valid, or uses what the target cannot run.
        BudgetError: compiling takes more than ``relay.budget.*`` of ``config`` allows.
    """
    if isinstance(example_inputs, str) or hasattr(example_inputs, "kind"):
        raise TypeError(f"a target is given by its name: compile(model, target={str(example_inputs)!r})")
    options = dict(config or {}) | precision_config(precision, keep) | matmul_precision_config(matmul_precision)
    if specialize:
        options[SPECIALIZE] = ";".join(specialize)
    tuned = ApplyHistoryBest(str(records)) if records is not None else contextlib.nullcontext()
    with tuned, PassContext(opt_level=opt_level, config=options), in_budget(), rare_collections():
        of_torch = {"example_inputs": example_inputs, "dynamic_shapes": dynamic_shapes}
        mod, weights = _imported(model, input_shapes, dims, of_torch)
        weights, state = weights_and_state(mod, weights)
        Needs(mod, {**weights, **(params or {})}, precision).warn_of_memory(in_process=True)
        built = build_module.build(
            _with_names(mod),
            target=target,
            params={**weights, **(params or {})},
            executor=executor,
        )
    keep_state(built.module, state)
    made = Model(built.module, device, threads=threads, max_steps=max_steps)
    made.build_report = built.build_report
    return made


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
        return from_onnx(model_of_bytes(model), input_shapes, dims=dims)
    return import_model(model, input_shapes, dims=dims, **of_torch)


def _with_names(mod: IRModule) -> IRModule:
    """Return a module that names its outputs, so that the library describes them."""
    if OUTPUT_NAMES.has(mod):
        return mod
    count = len(list(tensors_of(infer_module(mod)["main"].body.checked_type)))
    return mod.with_attr(OUTPUT_NAMES.key, [f"output_{i}" for i in range(count)])
