"""The examples in docs/codegen.md and docs/targets.md run as they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.relay.op import strategy
from tilewright.runtime.registry import list_global_func_names, remove_global_func
from tilewright.target import build as build  # registers the code generators that are there before
from tilewright.target import kind


@pytest.fixture(autouse=True)
def clean_registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kind, "_kinds", dict(kind._kinds))
    generics = (strategy.schedule_injective, strategy.dense_strategy)
    for generic in generics:
        monkeypatch.setattr(generic, "dispatch_dict", dict(generic.dispatch_dict))
    before = set(list_global_func_names())
    yield
    for name in set(list_global_func_names()) - before:
        remove_global_func(name)


@pytest.mark.parametrize("name", ["codegen.md", "targets.md"])
def test_examples_run_in_order(name: str) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / name).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 5
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, f"docs/{name}", "exec"), namespace)
