"""The examples in docs/runtime.md run as they stand."""

from __future__ import annotations

import re

from tests.runtime.kernels import ROOT


def test_examples_run_in_order() -> None:
    text = (ROOT / "docs" / "runtime.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 5
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, "docs/runtime.md", "exec"), namespace)
