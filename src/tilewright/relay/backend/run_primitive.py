"""Runs operators without a meaning in numpy, for ``relay.op.evaluation``, by compiling them one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.relay.expr import Call
from tilewright.relay.op.evaluation import Array, set_primitive_runner


def _run_primitive(call: Call, arguments: Sequence[Array]) -> list[Array]:
    from tilewright.relay.backend.te_compiler import run_primitive  # with LLVM, which importing relay is not to load

    return run_primitive(call, arguments)


set_primitive_runner(_run_primitive)
