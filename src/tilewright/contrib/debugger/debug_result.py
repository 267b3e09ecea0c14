"""Results of debugging, under TVM 0.8's name."""

from tilewright.runtime.executor.debug_result import (
    CHROME_TRACE_FILE_NAME,
    GRAPH_DUMP_FILE_NAME,
    ChromeTraceEvent,
    DebugResult,
)
from tilewright.runtime.params import save_param_dict as save_tensors

__all__ = ["CHROME_TRACE_FILE_NAME", "GRAPH_DUMP_FILE_NAME", "ChromeTraceEvent", "DebugResult", "save_tensors"]
