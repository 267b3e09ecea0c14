"""The device of docs/devices.md compiles as written there, and does what is said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_device_of_the_guide_works(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "devices.md").read_text()
    source, *_ = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
    commands, *_ = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    (tmp_path / "pad.c").write_text(source)
    (tmp_path / "use.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = f"set -e\n{commands.replace('gcc', 'gcc -Wall -Wextra -Werror')}\npython use.py"
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "pad(1) True another pad\n"
