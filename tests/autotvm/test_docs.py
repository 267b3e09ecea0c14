"""The code blocks of docs/tuning.md run, one after the other."""

from pathlib import Path

from tilewright import autotvm

GUIDE = Path(__file__).parents[2] / "docs" / "tuning.md"


def test_the_guide_runs(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    names: dict[str, object] = {"records": str(records)}
    for block in GUIDE.read_text().split("```python\n")[1:]:
        exec(compile(block.split("```")[0], str(GUIDE), "exec"), names)
    found = list(autotvm.record.load_from_file(records))
    assert found
    assert all(result.error_no == 0 for _, result in found)
