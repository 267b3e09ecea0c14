"""``tvm.transform``: pass infrastructure."""

from tilewright.ir.transform import (
    Pass,
    PassContext,
    PassInfo,
    PrintIR,
    Sequential,
    function_pass,
    module_pass,
)

__all__ = ["Pass", "PassContext", "PassInfo", "PrintIR", "Sequential", "function_pass", "module_pass"]
