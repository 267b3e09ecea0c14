"""``quantize``: a float module to one of integers, in the passes that TVM 0.8 has for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext, Sequential, module_pass
from tilewright.relay import transform
from tilewright.relay.build_module import bind_params_by_name
from tilewright.relay.expr import Function
from tilewright.relay.quantize.annotate import annotate
from tilewright.relay.quantize.calibrate import Dataset, calibrate
from tilewright.relay.quantize.config import current_qconfig, quantize_context
from tilewright.relay.quantize.conversions import partition_conversions
from tilewright.relay.quantize.partition import partition
from tilewright.relay.quantize.realize import realize


def prerequisite_optimize(mod: IRModule | Function, params: Mapping[str, Any] | None = None) -> IRModule:
    """Return a module with its parameters as constants, ready to be quantized; ``mod`` stays as it is.

    SimplifyInference, FoldConstant, FoldScaleAxis, CanonicalizeOps and FoldConstant run on it.
    """
    result = IRModule.from_expr(mod) if isinstance(mod, Function) else mod.copy()
    if params:
        result["main"] = bind_params_by_name(result["main"], params)
    passes = [
        transform.SimplifyInference(), transform.FoldConstant(), transform.FoldScaleAxis(),
        transform.CanonicalizeOps(), transform.FoldConstant(),
    ]  # fmt: skip
    return Sequential(passes)(result)


def quantize(
    mod: IRModule | Function, params: Mapping[str, Any] | None = None, dataset: Dataset | None = None
) -> IRModule:
    """Return a module that computes in integers, as the current ``qconfig`` says.

    Args:
        mod: a float module; its ``main`` is quantized.
        params: arrays of its parameters by name.
        dataset: samples of its inputs by name, for the modes of calibration that look at some.

    Raises:
        TilewrightError: the calibration needs a dataset, or weights are not constant.
        AssertionError: ``partition_conversions`` is "fully_integral", and the result is not.
    """
    ready, cfg = prerequisite_optimize(mod, params), current_qconfig()
    calibration = module_pass(calibrate(dataset), opt_level=1, name="QuantizeCalibrate")
    passes = [partition(), annotate(), calibration, transform.InferType()]
    passes += [] if cfg.do_simulation else [realize()]
    passes.append(transform.FoldConstant())
    required = ["QuantizeAnnotate", "QuantizeCalibrate", "QuantizeRealize"]
    with PassContext(opt_level=3, required_pass=required), quantize_context():
        made = Sequential(passes)(ready)
    if cfg.partition_conversions == "disabled":
        return made
    dtypes = {cfg.dtype_input, cfg.dtype_weight, cfg.dtype_activation}
    return partition_conversions(made, dtypes, cfg.partition_conversions == "fully_integral")
