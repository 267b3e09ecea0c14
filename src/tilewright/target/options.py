"""Options of code generation, for ``PassContext(config={...})``."""

from tilewright.ir.transform import PassContext

PassContext.register_option("target.opt_level", int, 3, "LLVM's optimisation level, 0 to 3")
