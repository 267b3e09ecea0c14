"""TVM's registration functions: attach a compute, strategy, pattern, schedule or rewrite to an operator from outside.

Each takes the operator's name, the value, and a priority level (10 by default); without a value it is a decorator::

    @relay.op.op.register_alter_op_layout("nn.conv2d", level=20)
    def alter(attrs, inputs, tinfos, out_type): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.op import Op, register_op_attr
from tilewright.relay.op.annotation.debug import debug as debug
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.strategy import OpImplementation as OpImplementation
from tilewright.relay.op.strategy import OpSpecialization as OpSpecialization
from tilewright.relay.op.strategy import OpStrategy as OpStrategy
from tilewright.relay.op.strategy.generic import schedule_injective, schedule_reduce

_Registered = Callable[[Any], Any] | Any

Op.providers["FTVMFakeQuantizationToInteger"] = "tilewright.relay.qnn.fake_quantization_rules"
Op.providers["FTVMMixedPrecisionConversionType"] = "tilewright.relay.op.mixed_precision"


def get(op_name: str) -> Op:
    """Return the operator ``op_name``; raise TilewrightError where it is not registered."""
    return Op.get(op_name)


def register(op_name: str, describe: str = "") -> Op:
    """Register the operator ``op_name`` and return it; raises TilewrightError if there is one of this name."""
    if op_name in Op.registry:
        raise TilewrightError(f"operator {op_name} is registered already; relay.op.get returns it")
    return Op.get_or_register(op_name)


def register_compute(op_name: str, compute: Any = None, level: int = 10) -> _Registered:
    """Set the compute ``(attrs, inputs, out_type) -> [te.Tensor]``."""
    return register_op_attr(op_name, "FTVMCompute", compute, level)


def register_strategy(op_name: str, fstrategy: Any = None, level: int = 10) -> _Registered:
    """Set the strategy ``(attrs, inputs, out_type, target) -> OpStrategy``."""
    return register_op_attr(op_name, "FTVMStrategy", fstrategy, level)


def register_schedule(op_name: str, schedule: Any = None, level: int = 10) -> _Registered:
    """Set the schedule ``(attrs, outs, target) -> te.Schedule``."""
    return register_op_attr(op_name, "FTVMSchedule", schedule, level)


def register_injective_schedule(op_name: str, level: int = 10) -> None:
    """Schedule the operator as an injective one."""
    register_schedule(op_name, schedule_injective, level)


def register_broadcast_schedule(op_name: str, level: int = 10) -> None:
    """Schedule the operator as a broadcasting one, which is an injective one."""
    register_schedule(op_name, schedule_injective, level)


def register_reduce_schedule(op_name: str, level: int = 10) -> None:
    """Schedule the operator as a commutative reduction."""
    register_schedule(op_name, schedule_reduce, level)


def register_pattern(op_name: str, pattern: int, level: int = 10) -> None:
    """Set the fusion pattern."""
    register_op_attr(op_name, "TOpPattern", OpPattern(pattern), level)


def register_stateful(op_name: str, stateful: bool, level: int = 10) -> None:
    """Set whether calls of the operator differ from one another, so that they are neither merged nor removed."""
    register_op_attr(op_name, "TOpIsStateful", stateful, level)


def register_alter_op_layout(op_name: str, alter_layout: Any = None, level: int = 10) -> _Registered:
    """Set the AlterOpLayout hook ``(attrs, inputs, tinfos, out_type) -> Expr | None``."""
    return register_op_attr(op_name, "FTVMAlterOpLayout", alter_layout, level)


def register_convert_op_layout(op_name: str, convert_layout: Any = None, level: int = 10) -> _Registered:
    """Set the ConvertLayout hook ``(attrs, inputs, tinfos, desired_layouts) -> Expr``."""
    return register_op_attr(op_name, "FTVMConvertOpLayout", convert_layout, level)


def register_infer_correct_layout(op_name: str, infer_layout: Any = None, level: int = 10) -> _Registered:
    """Set the layout rule ``(attrs, new_in_layouts, old_in_layouts, old_in_types) -> InferCorrectLayoutOutput``."""
    return register_op_attr(op_name, "FInferCorrectLayout", infer_layout, level)


def register_legalize(op_name: str, legal_op: Any = None, level: int = 10) -> _Registered:
    """Set the Legalize hook ``(attrs, inputs, types) -> Expr | None``."""
    return register_op_attr(op_name, "FTVMLegalize", legal_op, level)


def register_fake_quantization_to_integer(op_name: str, func: Any = None, level: int = 10) -> _Registered:
    """Set what FakeQuantizationToInteger makes of the operator: ``(call, type_map) -> [Expr, AffineType]``.

    ``call`` has integer operands; ``type_map`` gives their affine types, and at ``call`` that of the region's result.
    """
    return register_op_attr(op_name, "FTVMFakeQuantizationToInteger", func, level)


def register_mixed_precision_conversion(op_name: str, func: Any = None, level: int = 10) -> _Registered:
    """Set what ToMixedPrecision does with the operator: ``(call, mixed_precision_type) -> [category, dtype of sums,
    dtype of the result]``; see ``relay.op.mixed_precision``.
    """
    return register_op_attr(op_name, "FTVMMixedPrecisionConversionType", func, level)


def register_gradient(op_name: str, fgradient: Any = None, level: int = 10) -> _Registered:
    """Set the gradient ``(orig_call, grad) -> [Expr]``, one for each argument; see ``relay.transform.gradient``.

    ``orig_call`` and its arguments are typed; None stands for a gradient of zeros.
    """
    return register_op_attr(op_name, "FPrimalGradient", fgradient, level)


def register_external_compiler(op_name: str, fexternal: Any = None, level: int = 10) -> _Registered:
    """Raises UnsupportedError: there is no pass AnnotateTarget that would ask the function."""
    raise _without_reader("external compiler", op_name, "pass AnnotateTarget")


def _without_reader(what: str, op_name: str, reader: str) -> UnsupportedError:
    return UnsupportedError(
        f"the {what} of {op_name} would be ignored: this version has no {reader} that reads it; leave it out"
    )
