"""Implementations of an operator, and the choice among them.

A strategy is a list of specializations; each holds, under an optional condition on symbolic shapes, implementations
with priorities. The back end takes the tuned implementation if there is a record, else the one of highest ``plevel``::

    strategy = OpStrategy()
    schedule = wrap_topi_schedule(topi.generic.schedule_conv2d_nchw)  # see ``wrappers``
    strategy.add_implementation(wrap_compute_conv2d(topi.nn.conv2d_nchw), schedule, "conv2d_nchw.generic")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.type import Type
from tilewright.target.target import Target
from tilewright.te.specialized_condition import SpecializedCondition

Compute = Callable[[Any, Sequence[Any], Any], Any]
Schedule = Callable[[Any, Sequence[Any], Any], Any]


@dataclass(frozen=True, eq=False)
class OpImplementation:
    """One way to compute an operator: a compute, its schedule, a name for logs and records, and a priority."""

    fcompute: Compute
    fschedule: Schedule
    name: str = "default"
    plevel: int = 10

    def compute(self, attrs: Any, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """Return the output tensors."""
        outs = self.fcompute(attrs, inputs, out_type)
        return list(outs) if isinstance(outs, (list, tuple)) else [outs]

    def schedule(self, attrs: Any, outs: Sequence[Any], target: Target) -> Any:
        """Return the schedule of a kernel whose anchor is this operator."""
        return self.fschedule(attrs, outs, target)


@dataclass(eq=False)
class OpSpecialization:
    """Implementations that are valid under ``condition`` (None: always)."""

    condition: SpecializedCondition | None = None
    implementations: list[OpImplementation] = field(default_factory=list)

    def add_implementation(self, compute: Compute, schedule: Schedule, name: str = "default", plevel: int = 10) -> None:
        """Add an implementation."""
        self.implementations.append(OpImplementation(compute, schedule, name, plevel))


@dataclass(eq=False)
class OpStrategy:
    """The specializations that a strategy function returns."""

    specializations: list[OpSpecialization] = field(default_factory=list)

    def add_implementation(self, compute: Compute, schedule: Schedule, name: str = "default", plevel: int = 10) -> None:
        """Add an implementation, valid under the ``SpecializedCondition`` in force."""
        condition = SpecializedCondition.current()
        for item in self.specializations:
            if item.condition is condition:
                break
        else:
            item = OpSpecialization(condition)
            self.specializations.append(item)
        item.add_implementation(compute, schedule, name, plevel)


def one_implementation(compute: Compute, schedule: Schedule, name: str) -> OpStrategy:
    """Return a strategy of one implementation."""
    strategy = OpStrategy()
    strategy.add_implementation(compute, schedule, name)
    return strategy
