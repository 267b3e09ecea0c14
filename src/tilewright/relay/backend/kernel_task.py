"""Kernels as tasks: a fused function with all choices that its schedules leave open (``autotvm.task.choices``).

Its argument is the function's text, so that a record is self-contained. Every operator with a schedule is tuned in this
way, and is measured as it runs, with all operators that are fused into it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilewright import autotvm, te
from tilewright.autotvm.task.choices import choices_of, choosing
from tilewright.autotvm.task.dispatcher import ApplyConfig, DispatchContext, Workload
from tilewright.autotvm.task.flop import compute_flop
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.autotvm.task.task import template_called
from tilewright.ir.module import IRModule
from tilewright.relay.backend import te_compiler
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import PRIMITIVE, REINTERPRET
from tilewright.relay.text.parser import fromtext
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import post_order
from tilewright.target.target import Target

TEMPLATE = "kernel.cpu"
_KEPT = (PRIMITIVE.key, REINTERPRET.key)  # attributes that the schedule depends on


def kernel_text(func: Function) -> str:
    """Return a primitive function as text, without parts that do not affect its schedule."""
    attrs = {name: value for name, value in func.attrs.items() if name in _KEPT}
    plain = Function(func.params, func.body, func.ret_type, func.type_params, attrs)
    return str(IRModule.from_expr(plain).astext())


def kernel_workload(func: Function) -> Workload:
    """Return the workload by which records of a kernel are found."""
    return (TEMPLATE, kernel_text(func))


def _in_words(args: Sequence[Any]) -> str:
    """Describe the operators of a kernel's text, and the shapes of its first two arguments."""
    text = str(args[0])
    names = re.findall(r"([a-z_][\w.]*)\((?:%|\()", text.split("{", 1)[-1])
    operators = dict.fromkeys(name.removeprefix("nn.").removeprefix("contrib_") for name in names)
    shapes = re.findall(r"%p\d+: Tensor\[\(([\d, ]+)\)", text)
    return " ".join([*operators, *(shape.replace(", ", "x") for shape in shapes[:2])])


def kernel_of_text(text: str) -> Function:
    """Return the typed primitive function of a text."""
    func = InferType()(fromtext(text))["main"]
    assert isinstance(func, Function)
    return func


@autotvm.template(TEMPLATE)
def kernel(text: str) -> tuple[te.Schedule, list[te.Tensor]]:
    """Return schedule and arguments of a kernel, results last."""
    target = Target.current(allow_none=False)
    assert target is not None
    config = autotvm.get_config()
    with choosing(config):
        inputs, outputs, schedule, _ = te_compiler.schedule_of(kernel_of_text(text), target)
    try:
        compute_flop(schedule)
    except RuntimeError:  # it moves data, or has operations that are not counted: count its elements instead
        config.add_flop(sum(_elements(t) for t in outputs))
    return schedule, [*inputs, *outputs]


template_called(TEMPLATE).version = "1"
template_called(TEMPLATE).words = _in_words


def _elements(tensor: te.Tensor) -> int:
    count = 1
    for dim in tensor.shape:
        count *= int(getattr(dim, "value", 1))
    return count


def tuned_schedule(func: Function, target: Target) -> Any | None:
    """Return inputs, outputs, schedule and builder of a kernel by a record in force, of itself or of its convolution's
    layouts; None for other kernels.
    """
    context = DispatchContext.current
    config = context.query(target, kernel_workload(func)) if not context.is_fallback() else None
    whose = "the kernel"
    if config is None or config.is_fallback:
        config, whose = _config_of_operators(func), "the kernel, by the layouts that it chose"
    if config is None:
        return None
    with ApplyConfig(config), choosing(config):
        found = te_compiler.schedule_of(func, target)
    found[-1].record = config
    found[-1].recorded = f"a tuning record of {whose}{te_compiler.measured(config.cost)}"
    return found


def _config_of_operators(func: Function) -> ConfigSpace | None:
    """Return the configuration that the record of the kernel's operator chose with its layouts."""
    calls = [e for e in post_order(func.body) if isinstance(e, Call)]
    texts = [getattr(c.attrs, "tuned", "") for c in calls]
    return next((choices_of(text) for text in texts if text), None)


te_compiler.tuned_schedules.append(tuned_schedule)
