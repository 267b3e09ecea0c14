"""The examples in docs/operators.md run as they stand."""

import re
from pathlib import Path

from tilewright.ir.op import Op

DOCS = Path(__file__).parents[2] / "docs"


def test_examples_run_in_order() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "operators.md").read_text(), re.DOTALL)
    assert len(blocks) >= 5
    namespace: dict[str, object] = {"__name__": "docs"}
    try:
        for block in blocks:
            exec(compile(block, "docs/operators.md", "exec", dont_inherit=True), namespace)
    finally:
        Op.registry.pop("demo.threshold", None)
