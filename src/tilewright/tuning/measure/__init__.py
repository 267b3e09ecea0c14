"""Measuring configurations: what a builder and a runner are (``measure.py``), those of this machine
(``measure_methods.py``), and who may run them instead (``executor.py``). ``programs.py`` builds and times programs;
``build.py`` builds one in a builder's process. Processes are ``tuning.processes``'s.
"""

from tilewright.autotvm.measurement import MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.rpc.client import request_remote
from tilewright.tuning.measure import executor
from tilewright.tuning.measure.measure import Builder, Runner
from tilewright.tuning.measure.measure_methods import (
    BuildResult,
    LocalBuilder,
    LocalRunner,
    RPCRunner,
    create_measure_batch,
    measure_option,
)  # fmt: skip

__all__ = [
    "BuildResult", "Builder", "LocalBuilder", "LocalRunner", "MeasureErrorNo", "MeasureInput", "MeasureResult",
    "RPCRunner", "Runner", "create_measure_batch", "executor", "measure_option", "request_remote",
]  # fmt: skip
