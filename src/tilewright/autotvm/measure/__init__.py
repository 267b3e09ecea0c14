"""Measuring configurations: what a builder and a runner are (``measure.py``), those of this machine
(``measure_methods.py``), and who may run them instead (``executor.py``). Processes are ``tilewright.measure``'s.
"""

from tilewright.autotvm.measure import executor
from tilewright.autotvm.measure.measure import (
    Builder,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    Runner,
)  # fmt: skip
from tilewright.autotvm.measure.measure_methods import (
    BuildResult,
    LocalBuilder,
    LocalRunner,
    create_measure_batch,
    measure_option,
)  # fmt: skip

__all__ = [
    "BuildResult", "Builder", "LocalBuilder", "LocalRunner", "MeasureErrorNo", "MeasureInput", "MeasureResult",
    "Runner", "create_measure_batch", "executor", "measure_option",
]  # fmt: skip
