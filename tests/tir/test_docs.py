"""The examples in docs/tir.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path


def test_examples_run_in_order() -> None:
    text = (Path(__file__).parents[2] / "docs" / "tir.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 5
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, "docs/tir.md", "exec", dont_inherit=True), namespace)
