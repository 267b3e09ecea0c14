"""Schedule of ``topi.nn.conv2d_patches``: the windows of a packed image, copied side by side.

It pays when rows of the result fill no register tile: several are merged to one (``conv2d.rows_to_merge`` decides).
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.topi.cpu.common import worth_threads
from tilewright.topi.cpu.loops import fuse_all


def schedule_patches(s: te.Schedule, op: Any) -> None:
    """Copy the patches before anything else; the cores share the channels."""
    stage, (kh, kw) = s[op], op.attrs["kernel_size"]
    n, tap, y, x, c = op.axis
    chunk, tap = stage.split(tap, factor=int(kh) * int(kw))
    row, column = stage.split(tap, factor=int(kw))
    rows, x = stage.split(x, factor=int(op.attrs["width"]))
    stage.reorder(n, chunk, row, column, y, rows, x, c)
    stage.vectorize(c)
    outer = fuse_all(stage, [n, chunk])
    if outer is not None and worth_threads(op):
        stage.parallel(outer)
