"""Write the software bill of materials of what ``pip install tilewright`` brings: ``make sbom``.

CycloneDX's own tool reads an environment that has the newest releases of the declared dependencies and nothing else.
The file is the same for the same releases; its time is the commit's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str | Path) -> str:
    """Run a command in the repository; return what it printed, or leave with it where it fails."""
    words = list(map(str, command))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(folder: Path) -> Path:
    """Make an environment with Tilewright's dependencies alone; return its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    run("uv", "venv", "--quiet", "--python", sys.executable, folder)
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    folders = [f"--find-links={each}" for each in os.environ.get("PIP_FIND_LINKS", "").split()]
    run("uv", "pip", "install", "--quiet", "--link-mode", "symlink", *folders, "--python", folder / "bin" / "python",
        *dependencies)  # fmt: skip
    return folder / "bin" / "python"


def main() -> None:
    """Write the file; print how many components it names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "tilewright.cdx.json")
    out = parser.parse_args().out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("SOURCE_DATE_EPOCH", run("git", "log", "-1", "--format=%ct").strip())
    python = environment(ROOT / "build" / "sbom")
    unfinished = out.with_name(f".{out.name}")
    run("cyclonedx-py", "environment", "--pyproject", "pyproject.toml", "--mc-type", "library", "--output-reproducible",
        "--of", "JSON", "-o", unfinished, python)  # fmt: skip
    unfinished.replace(out)
    components = json.loads(out.read_text())["components"]
    print(f"{out}: {len(components)} components: {', '.join(sorted(each['name'] for each in components))}")


if __name__ == "__main__":
    main()
