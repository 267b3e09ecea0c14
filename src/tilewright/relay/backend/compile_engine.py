"""TVM's older name of ``relay.backend.te_compiler``."""

from tilewright.relay.backend.te_compiler import (
    CachedFunc,
    CCacheKey,
    LoweredOutput,
    TECompiler,
    get,
    get_valid_implementations,
    lower_call,
    select_implementation,
)

CompileEngine = TECompiler

__all__ = [
    "CCacheKey", "CachedFunc", "CompileEngine", "LoweredOutput", "TECompiler", "get", "get_valid_implementations",
    "lower_call", "select_implementation",
]  # fmt: skip
