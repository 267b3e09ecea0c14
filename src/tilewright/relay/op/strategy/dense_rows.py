"""The number of rows that the layout of a dense layer's matrix is chosen for.

A single row is fastest in wider blocks than many, where its matrix stays in a cache. A larger one waits for memory in
any: libraries that have products of one row and of many, such as a step's and a prompt's, then hold it once.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.transform import PassContext
from tilewright.relay.op.relations import known
from tilewright.target.features import features

OPTION = "relay.dense.shared_layout"
_ANY = 64  # rows, as topi's schedules take a named dimension


def is_shared(weight: Any) -> bool:
    """Return whether a matrix of a type has one layout for all rows."""
    numbers = math.prod(int(known(d) or 0) for d in weight.shape)
    return bool(PassContext.current().option(OPTION)) and numbers * dt.nbytes(weight.dtype) > features().l2_bytes


def rows_of_layout(rows: Any, weight: Any) -> Any:
    """Return the rows to choose a layout for: those of the product, or one number for all."""
    return _ANY if is_shared(weight) else rows
