"""``packaging/wheel_contents.py``: a wheel that is in order, and each fault that it finds."""

from __future__ import annotations

import base64
import hashlib
import runpy
import subprocess
import zipfile
from pathlib import Path

import pytest

CONTENTS = runpy.run_path(str(Path(__file__).parents[2] / "packaging" / "wheel_contents.py"))
faults, sections = CONTENTS["faults"], CONTENTS["sections"]

INFO = "net-1.0.dist-info"
TAG = "py3-none-manylinux_2_28_x86_64"


def wheel(folder: Path, files: dict[str, bytes], listed: dict[str, bytes] | None = None, tag: str = TAG) -> Path:
    """Write a wheel whose RECORD has the checksums of ``listed``, by default of all its files."""
    files = {**files, f"{INFO}/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n".encode()}
    rows = [f"{INFO}/RECORD,,"]
    for name, data in {**files, **(listed or {})}.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}")
    path = folder / f"net-1.0-{TAG}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**files, f"{INFO}/RECORD": "\n".join(rows).encode()}.items():
            archive.writestr(name, data)
    return path


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A shared library without and with debug information."""
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "one.c").write_text("int one(void) { return 1; }\n")
    for name, option in ("plain.so", "-g0"), ("debug.so", "-g"):
        subprocess.run(["gcc", "-shared", "-fPIC", option, "one.c", "-o", name], cwd=folder, check=True)
    return (folder / "plain.so").read_bytes(), (folder / "debug.so").read_bytes()


def test_a_wheel_in_order_has_no_faults(tmp_path: Path, libraries: tuple[bytes, bytes]) -> None:
    assert ".dynsym" in sections(libraries[0])
    assert faults(wheel(tmp_path, {"net/__init__.py": b"", "net/lib.so": libraries[0]})) == []


def test_debug_information_is_found(tmp_path: Path, libraries: tuple[bytes, bytes]) -> None:
    assert faults(wheel(tmp_path, {"net/lib.so": libraries[1]})) == ["net/lib.so has debug information"]


def test_a_record_that_is_not_true_is_found(tmp_path: Path) -> None:
    made = wheel(tmp_path, {"net/a.py": b"a"}, {"net/a.py": b"b", "net/gone.py": b""})
    assert faults(made) == [
        "net/gone.py is listed in RECORD and not there",
        "net/a.py has another checksum than RECORD says",
    ]


def test_another_tag_and_files_of_a_build_are_found(tmp_path: Path) -> None:
    found = faults(wheel(tmp_path, {"net/a.pyc": b""}, tag="cp311-cp311-linux_x86_64"))
    assert found == [f"its name says {TAG}, WHEEL says cp311-cp311-linux_x86_64", "net/a.pyc is not to be installed"]
