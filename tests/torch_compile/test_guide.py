"""The examples of docs/frontends.md about PyTorch's compilers run as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tilewright.torch_compile import Options, tilewright

GUIDE = (Path(__file__).parents[2] / "docs" / "frontends.md").read_text()


def _example(heading: str) -> str:
    return GUIDE.split(f"\n## {heading}\n")[1].split("```python\n")[1].split("```")[0]


def test_the_example_of_torch_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    installed = torch.compile

    def by_object(model: Any, backend: str, **options: Any) -> Any:
        assert backend == "tilewright"  # the name is an entry point's, which the tests do not depend on
        return installed(model, backend=tilewright, **options)

    monkeypatch.setattr(torch, "compile", by_object)
    names: dict[str, Any] = {}
    exec(compile(_example("torch.compile"), "docs/frontends.md", "exec"), names)
    assert names["y"].shape == (8, 4)


def test_the_example_of_a_module() -> None:
    exec(compile(_example("PyTorch"), "docs/frontends.md", "exec"), {})


def test_the_example_of_torchscript() -> None:
    exec(compile(_example("TorchScript"), "docs/frontends.md", "exec"), {})


def test_the_table_has_all_options() -> None:
    rows = GUIDE.split("\n## torch.compile\n")[1].split("\n## ")[0]
    for name in Options.__dataclass_fields__:
        assert f"\n| `{name}` |" in rows
