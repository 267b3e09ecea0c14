"""``packaging/runtime``: the distribution tilewright-runtime, which runs models without a compiler."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.kernels import ROOT

import tilewright

RUNTIME = ROOT / "packaging" / "runtime"
PROGRAM = """
import sys
sys.path[:0] = {path!r}
import numpy as np, tilewright
model = tilewright.load({library!r})
print(int(model(np.ones((1, 1, 8, 8), "float32")).argmax()))
try:
    tilewright.compile({library!r})
except ImportError as error:
    print(error)
print(sorted({{name.partition(".")[0] for name in sys.modules}} & {{"llvmlite", "onnx", "ml_dtypes", "typer", "rich"}}))
"""


def test_all_parts_have_one_version() -> None:
    header = (ROOT / "native/include/tilewright_model.h").read_text()
    numbers = re.findall(r"#define TILEWRIGHT_VERSION_\w+ (\d+)", header)
    projects = [tomllib.loads((folder / "pyproject.toml").read_text())["project"] for folder in (ROOT, RUNTIME)]
    assert [p["version"] for p in projects] == [tilewright.__version__] * 2
    assert ".".join(numbers) == tilewright.__version__
    assert f'#define TILEWRIGHT_VERSION "{tilewright.__version__}"' in header
    assert projects[1]["dependencies"] == [d for d in projects[0]["dependencies"] if d.startswith("numpy")]


@pytest.mark.full
def test_its_wheel_is_small_and_runs_models_with_numpy_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", str(RUNTIME), "-w", str(tmp_path)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < 500_000
    with zipfile.ZipFile(wheel) as archive:
        assert sum(info.file_size for info in archive.infolist()) < 1_000_000
        archive.extractall(tmp_path / "installed")
    library = tilewright.compile(ROOT / "examples/digits/digits.onnx").save(tmp_path / "digits.so")
    path = [str(tmp_path / "installed"), str(Path(np.__file__).parents[1])]
    program = PROGRAM.format(path=path, library=str(library))
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    number, message, loaded = done.stdout.splitlines()
    assert number.isdigit() and "install tilewright in its place" in message and loaded == "[]"
