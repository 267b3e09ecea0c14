"""docs/onnx.md: its list of converters is complete."""

from __future__ import annotations

from pathlib import Path

from tilewright.relay.frontend.onnx.registry import supported_operators

TEXT = (Path(__file__).parents[3] / "docs" / "onnx.md").read_text()


def test_list_of_converters_is_complete() -> None:
    listed = TEXT.split("## Converters")[1].replace("\n", " ").strip().removesuffix(".")
    assert [name.strip() for name in listed.split(",")] == supported_operators()
