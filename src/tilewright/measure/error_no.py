"""What may go wrong with a candidate, by TVM 0.8's numbers."""

from __future__ import annotations

import enum


class MeasureErrorNo(enum.IntEnum):
    """Why a measurement has no time; records hold the number."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8
