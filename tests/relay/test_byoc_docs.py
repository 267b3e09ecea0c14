"""The examples in docs/byoc.md run as they stand, and print what the document says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from tilewright.ir.op import Op

DOCS = Path(__file__).parents[2] / "docs"


def test_examples_print_what_the_document_says() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "byoc.md").read_text(), re.DOTALL)
    assert len(blocks) >= 5
    namespace: dict[str, object] = {"__name__": "docs"}
    try:
        for block in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block, "docs/byoc.md", "exec", dont_inherit=True), namespace)
            expected = [line.removeprefix("# ") for line in block.splitlines() if line.startswith("# ")]
            assert printed.getvalue().splitlines() == expected
    finally:
        Op.get("tanh").reset_attr("target.vpu")
