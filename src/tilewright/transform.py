"""``tvm.transform``: pass infrastructure."""

from tilewright.ir.transform import (
    FunctionPass,
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    PrintIR,
    Sequential,
    function_pass,
    module_pass,
)

__all__ = [
    "FunctionPass", "ModulePass", "Pass", "PassContext", "PassInfo", "PrintIR", "Sequential", "function_pass",
    "module_pass",
]  # fmt: skip
