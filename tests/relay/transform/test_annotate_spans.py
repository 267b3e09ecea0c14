"""AnnotateSpans gives expressions the place in their module's text."""

import tilewright as tvm
from tilewright import relay
from tilewright.relay.analysis import nodes


def test_calls_get_line_and_column_of_the_text() -> None:
    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.add(x, x))))
    spanned = relay.transform.AnnotateSpans()(mod)
    tvm.ir.assert_structural_equal(relay.transform.InferType()(spanned), relay.transform.InferType()(mod))
    calls = [n for n in nodes(spanned["main"]) if isinstance(n, relay.Call)]
    lines = mod.astext().splitlines()
    assert len(calls) == 2
    for call in calls:
        assert call.span is not None and str(call.span.source_name.name) == "GeneratedSource"
        assert call.op.name in lines[call.span.line - 1]
