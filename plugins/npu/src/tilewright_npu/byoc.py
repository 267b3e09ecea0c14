"""``relay.ext.npu``: the code generator that ``relay.build`` calls with each partitioned function."""

from __future__ import annotations

from tilewright import runtime
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import GLOBAL_SYMBOL
from tilewright_npu import patterns
from tilewright_npu.codegen.generate import generate
from tilewright_npu.module import module_of
from tilewright_npu.patterns import TARGET
from tilewright_npu.target import memories


def compile_function(func: Function) -> runtime.Module:
    """The module of one function: its program."""
    symbol = GLOBAL_SYMBOL.of(func)
    sram, ddr = memories(str(func.attrs.get(TARGET, "npu")))
    return module_of([generate(func, symbol, sram, ddr).encode()])


def register() -> None:
    """Make the compiler "npu" known; the package's entry point calls it. Its patterns are registered as they load."""
    assert patterns.pattern_table
    runtime.register_func("relay.ext.npu", compile_function, override=True)
    runtime.register_func("relay.ext.npu.partition", patterns.partition_for_npu, override=True)
