"""Libraries and archives end in a checksum, by which a changed byte is found before any of their code runs."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tests.native_objects import NATIVE

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.micro import export_model_library_format
from tilewright.runtime.checksum import SIZE, add_checksum, verify_checksum
from tilewright.runtime.library_info import verify_library


def network(target: str) -> runtime.Module:
    x = relay.var("x", shape=(2, 3))
    module = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.add(x, relay.const(1.0)))))
    return relay.build(module, target)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(network("llvm").export_library(tmp_path_factory.mktemp("sum") / "n.so"))


def test_a_library_is_as_it_was_written(library: Path) -> None:
    verify_library(library)
    model = tvm.load(library, verify=True)
    np.testing.assert_array_equal(model(np.full((2, 3), -3.0)), np.zeros((2, 3)))


def test_any_changed_byte_is_found(library: Path, tmp_path: Path) -> None:
    data, path = library.read_bytes(), tmp_path / "changed.so"
    for at in [*range(0, len(data) - SIZE, 97), *range(len(data) - SIZE, len(data))]:
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        with pytest.raises(tvm.TVMError, match=r"changed\.so (is damaged|has no checksum)"):
            runtime.load_module(path, verify=True)


@pytest.mark.parametrize("size", [0, 1, SIZE - 1, SIZE, -SIZE, -1])
def test_a_file_cut_short_is_found(library: Path, tmp_path: Path, size: int) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes(library.read_bytes()[:size])
    with pytest.raises(tvm.TVMError, match=r"cut\.so"):
        tvm.load(path, verify=True)


@pytest.mark.parametrize("size", [*range(55, 66), 119, 120, 65536, 65537, 200_000])
def test_files_of_any_size_have_one(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(size).bytes(size))
    add_checksum(path)
    verify_checksum(path)


def test_archives_for_boards_have_one(tmp_path: Path) -> None:
    path = export_model_library_format(network("c"), tmp_path / "n.tar")
    verify_library(path)
    names = subprocess.run(["tar", "tf", path], check=True, capture_output=True, text=True)
    with tarfile.open(path) as tar:
        assert "./metadata.json" in tar.getnames() and "./metadata.json" in names.stdout and not names.stderr
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(tvm.TVMError, match="is damaged"):
        verify_library(path)


def test_portable_c_has_the_same_sums(tmp_path: Path) -> None:
    """Without the processor's instructions, as on boards."""
    program = tmp_path / "sums"
    source = tmp_path / "sums.c"
    source.write_text(
        '#include "src/core/sha256.h"\n#include <stdio.h>\n#include <stdlib.h>\n'
        "int main(int argc, char** argv) {\n  (void)argc;\n  static uint8_t data[300], out[SHA256_SIZE];\n"
        "  for (int n = 0; n < 300; ++n) {\n    Sha256 s;\n    sha256_start(&s);\n"
        "    if (atoi(argv[1])) s.by_instructions = 0;\n    sha256_add(&s, data, (size_t)n / 3);\n"
        "    sha256_add(&s, data, (size_t)(n - n / 3));\n    sha256_finish(&s, out);\n"
        '    for (int i = 0; i < SHA256_SIZE; ++i) printf("%02x", out[i]);\n    puts("");\n  }\n}\n'
    )
    subprocess.run(["gcc", "-O1", f"-I{NATIVE}", str(source), "-o", str(program)], check=True)
    expected = [hashlib.sha256(bytes(n)).hexdigest() for n in range(300)]
    for portable in "01":
        done = subprocess.run([str(program), portable], check=True, capture_output=True, text=True)
        assert done.stdout.split() == expected
