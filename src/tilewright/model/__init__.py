"""``tilewright.compile``: compilation of a model file, an ONNX model or a Relay module to a callable :class:`Model`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.model.kept_libraries import KeptLibraries
from tilewright.model.key import model_key
from tilewright.model.options import BuildOptions
from tilewright.runtime.model import Model as Model
from tilewright.runtime.model import load as load

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
    executor: str = "auto",
    records: str | os.PathLike[str] | None = None,
    config: Mapping[str, Any] | None = None,
    precision: str = "float32",
    keep: Sequence[str] = (),
    matmul_precision: str = "highest",
    device: Device | None = None,
    threads: int | None = None,
    max_steps: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
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
        cache_dir: a folder of the user's own where libraries of model files are kept by their content and these
            arguments: compiling the same again opens the library. None keeps none.

    Raises:
        TilewrightError: the model is not valid, or uses what the target cannot run.
        BudgetError: compiling takes more than ``relay.budget.*`` of ``config`` allows.
    """
    if isinstance(example_inputs, str) or hasattr(example_inputs, "kind"):
        raise TypeError(f"a target is given by its name: compile(model, target={str(example_inputs)!r})")
    options = BuildOptions(
        params=params, input_shapes=input_shapes, dims=dims, specialize=specialize, opt_level=opt_level,
        executor=executor, config=config, precision=precision, keep=keep, matmul_precision=matmul_precision,
    )  # fmt: skip
    kept = None if cache_dir is None else KeptLibraries(cache_dir, "model")
    key = None if kept is None else model_key(model, target, records, vars(options))
    module = None if kept is None or key is None else kept.get(key)
    report = None
    if module is None:
        from tilewright.model.build import build_model  # the compiler: a second of imports

        of_torch = {"example_inputs": example_inputs, "dynamic_shapes": dynamic_shapes}
        module, report = build_model(model, target, options, records, of_torch)
        if kept is not None and key is not None:
            kept.keep(key, module)
    made = Model(module, device, threads=threads, max_steps=max_steps)
    made.build_report = report
    return made
