"""The program behind ``make demo``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "digits" / "demo.py"


def test_demo_compiles_classifies_and_reports(tmp_path: Path) -> None:
    library = tmp_path / "digits.so"
    done = subprocess.run(
        [sys.executable, str(DEMO), "--output", str(library)],
        capture_output=True,
        text=True,
        env=dict(os.environ, PYTHONIOENCODING="utf-8", COLUMNS="200"),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert library.stat().st_size > 0
    accuracy = re.search(r"Accuracy\s+([\d.]+) %", done.stdout)
    assert accuracy is not None
    assert float(accuracy[1]) > 98.5
    assert re.search(r"Latency\s+[\d.]+ us a picture", done.stdout)
    assert f"{library.stat().st_size:,} bytes" in done.stdout
