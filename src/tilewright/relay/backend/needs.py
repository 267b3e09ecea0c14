"""Memory and disk that a build takes, by the weights of an imported model, and what there is of them."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.ir.budget import available_memory
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Function, Var
from tilewright.relay.op.nn.nbits import DequantizeNBits, MatmulNBits
from tilewright.relay.transform.common import open_children
from tilewright.relay.transform.precision.halve_weights import FLOAT32
from tilewright.relay.visitor import post_order
from tilewright.runtime.error import ExportError
from tilewright.runtime.mapped_files import IN_MEMORY, folder_of_weights

_COMPILER = 200 << 20  # bytes that the compiler takes beside weights
_TEMPORARY = 2  # times the largest weight that is computed, while it is


class Needs:
    """Bytes of an imported model's weights: of all in a library, and of those that the build computes.

    Computed weights (codes of few bits, other precisions) are laid out anew; others are used where they lie.
    """

    def __init__(self, mod: IRModule, params: Mapping[str, Any], precision: str = FLOAT32) -> None:
        sizes = {name: int(getattr(array, "nbytes", 0)) for name, array in params.items()}
        halves = 1 if precision == FLOAT32 else 2
        self.library = sum(sizes.values()) // halves
        computed = sizes if halves == 2 else {name: sizes[name] for name in _of_few_bits(mod) if name in sizes}
        self.computed = sum(computed.values()) // halves
        self.largest = max(computed.values(), default=0)

    def memory(self, in_process: bool = False) -> int:
        """Return the bytes of memory that a build takes; ``in_process``: and the model that then runs here."""
        place = folder_of_weights()
        held = min(self.computed, IN_MEMORY)
        if place is None or shutil.disk_usage(place).free < self.computed:
            held = self.computed
        return _COMPILER + _TEMPORARY * self.largest + (max(held, self.library) if in_process else held)

    def warn_of_memory(self, in_process: bool = False) -> None:
        """Warn where a build takes more memory than there is."""
        needed, found = self.memory(in_process), available_memory()
        if found is not None and needed > found:
            warnings.warn(
                f"this build takes about {_megabytes(needed)} of memory, and {_megabytes(found)} are available: it may "
                "become slow or be ended by the system; close other programs, or build where there is more",
                stacklevel=3,
            )

    def check_disk(self, output: Path) -> None:
        """Raise ExportError where the disks have no room for a file that holds the weights, and for those computed."""
        folder, place = output.absolute().parent, folder_of_weights()
        beyond = max(0, self.computed - IN_MEMORY)
        same = place is not None and folder.stat().st_dev == Path(place).stat().st_dev
        needed, disk = self.library + (beyond if same else 0), shutil.disk_usage(folder)
        if disk.total and needed > disk.free:
            more = f", {_megabytes(beyond)} of them while it is built" if same and beyond else ""
            raise ExportError(
                f"cannot write {output}: its weights take {_megabytes(needed)}{more}, and {_megabytes(disk.free)} are "
                "free on its disk"
            )


def _of_few_bits(mod: IRModule) -> set[str]:
    """Return the names of the parameters that are codes of few bits, or their scales and zero points."""
    found: set[str] = set()
    for func in mod.functions.values():
        for expr in post_order(func.body, open_children) if isinstance(func, Function) else ():
            if isinstance(expr, Call) and expr.op in (MatmulNBits.op, DequantizeNBits.op):
                found.update(arg.name_hint for arg in expr.args if isinstance(arg, Var))
    return found


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.0f} MB"
