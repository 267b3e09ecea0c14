"""AnnotateSpans: give every expression the place in the module's text as its span.

Before and after, as the span of ``add`` shows::

    def @main(%x: Tensor[(2), float32]) { add(%x, %x) }      // built in Python: no span
    ->
    def @main(%x: Tensor[(2), float32]) { add(%x, %x) }      // span: GeneratedSource, the line and column of add
"""

from __future__ import annotations

from tilewright.ir.diagnostics import DiagnosticContext
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext, module_pass
from tilewright.relay.expr import Call, Function
from tilewright.relay.text.parser import parse
from tilewright.relay.visitor import post_order


def AnnotateSpans() -> Pass:
    """Print the module and parse it under the source name ``GeneratedSource``."""

    @module_pass(opt_level=0, name="AnnotateSpans")
    def run(mod: IRModule, _: PassContext) -> IRModule:
        return parse(mod.astext(), "GeneratedSource")

    return run


def SpanCheck() -> Pass:
    """Change nothing; raise DiagnosticError where a call of the module has no span."""

    @module_pass(opt_level=0, name="SpanCheck")
    def run(mod: IRModule, _: PassContext) -> IRModule:
        context = DiagnosticContext(mod)
        for var, func in mod.items():
            for expr in post_order(func) if isinstance(func, Function) else ():
                if isinstance(expr, Call) and expr.span is None:
                    context.error(
                        None, f"a call of {expr.op} in @{var.name_hint} has no span; AnnotateSpans gives it one"
                    )
        context.render()
        return mod

    return run
