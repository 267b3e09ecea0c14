"""TVM's module of ``build`` and ``lower``, which are in ``target.build`` and ``te.lower``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.memory import Buffer
from tilewright.ir.module import IRModule
from tilewright.target.build import OperatorModule as OperatorModule
from tilewright.target.build import build as build
from tilewright.te.lower import lower as lower
from tilewright.te.lower import schedule_to_primfunc
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import Tensor


def schedule_to_module(
    sch: Schedule, args: Sequence[Any] | None = None, name: str = "main", binds: Mapping[Tensor, Buffer] | None = None
) -> IRModule:
    """The loops of a schedule as a module of one function, before any pass."""
    return IRModule.from_expr(schedule_to_primfunc(sch, args or [], name, binds))
