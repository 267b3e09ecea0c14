"""``tvm.instrument``: code that runs around passes."""

from tilewright.ir.instrument import (
    PassInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    VerifyInstrument,
    pass_instrument,
)

__all__ = [
    "PassInstrument", "PassTimingInstrument", "PrintAfterAll", "PrintBeforeAll", "VerifyInstrument", "pass_instrument",
]  # fmt: skip
