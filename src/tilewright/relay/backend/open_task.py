"""Tasks with open layouts: the layouts that AlterOpLayout chooses are tuned together with the kernel's schedule.

Their templates have the names of those of packed tensors, and take plain ones (``conv2d_task``, ``dense_task``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.autotvm.task.choices import ALGORITHM, choosing
from tilewright.autotvm.task.dispatcher import DispatchContext
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.autotvm.task.task import template_called
from tilewright.relay.backend import te_compiler
from tilewright.relay.expr import Function
from tilewright.target.target import Target

Kernel = Callable[[Sequence[Any], Target], Function]


def register_open(name: str, is_open: Callable[[Sequence[Any]], bool], kernel: Kernel) -> None:
    """Extend the template ``name`` to arguments for which ``is_open`` holds.

    ``kernel`` returns the primitive function that the configuration in force makes of them. Its parameters are the
    tensors that a candidate is measured with; its results follow.
    """
    template = template_called(name)

    def instantiate(*arguments: Any) -> tuple[te.Schedule, list[te.Tensor]]:
        """Return schedule and arguments, results last. Packed tensors go to topi's template."""
        if not is_open(arguments):
            return template.from_parts(arguments)
        target = Target.current(allow_none=False)
        assert target is not None
        config = DispatchContext.current.query(target, (name,))
        with choosing(config):
            made = _schedule(kernel, arguments, target)
            if type(config) is ConfigSpace and ALGORITHM in config:
                _collect(config, kernel, arguments, target)
        return made

    template.fcustomized = instantiate


def given_dtype(out_dtype: str, dtype: str) -> str:
    """Return the attribute ``out_dtype`` of an operator whose data is of ``dtype``."""
    return "" if out_dtype == dtype else out_dtype


def _schedule(kernel: Kernel, arguments: Sequence[Any], target: Target) -> tuple[te.Schedule, list[te.Tensor]]:
    inputs, outputs, schedule, _ = te_compiler.schedule_of(kernel(arguments, target), target)
    return schedule, [*inputs, *outputs]


def _collect(config: ConfigSpace, kernel: Kernel, arguments: Sequence[Any], target: Target) -> None:
    """Add the choices of all other algorithms' schedules to a space."""
    first, *others = config.space_map[ALGORITHM].entities
    for entity in others:
        config[ALGORITHM] = entity
        _schedule(kernel, arguments, target)
    config[ALGORITHM] = first
