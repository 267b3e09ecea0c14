"""The examples of QNN in docs/quantization.md run as they stand, and print what the document says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from tilewright.ir.op import Op

DOCS = Path(__file__).parents[3] / "docs"


def test_examples_print_what_the_document_says() -> None:
    text = (DOCS / "quantization.md").read_text().partition("## The arithmetic")[2]
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 5
    namespace: dict[str, object] = {"__name__": "docs"}
    try:
        for block in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block, "docs/quantization.md", "exec", dont_inherit=True), namespace)
            expected = [line.removeprefix("# ") for line in block.splitlines() if line.startswith("# ")]
            assert printed.getvalue().splitlines() == expected
    finally:
        Op.get("abs").reset_attr("FTVMFakeQuantizationToInteger")
