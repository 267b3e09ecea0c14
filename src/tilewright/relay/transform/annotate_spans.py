"""AnnotateSpans: every expression of a module gets the place where it stands in the module's text.

Before and after, as the span of ``add`` shows::

    def @main(%x: Tensor[(2), float32]) { add(%x, %x) }      // built in Python: no span
    ->
    def @main(%x: Tensor[(2), float32]) { add(%x, %x) }      // span: GeneratedSource, the line and column of add
"""

from __future__ import annotations

from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext, module_pass
from tilewright.relay.text.parser import parse


def AnnotateSpans() -> Pass:
    """The pass: the module is printed, and read again under the source name ``GeneratedSource``."""

    @module_pass(opt_level=0, name="AnnotateSpans")
    def run(mod: IRModule, _: PassContext) -> IRModule:
        return parse(mod.astext(), "GeneratedSource")

    return run
