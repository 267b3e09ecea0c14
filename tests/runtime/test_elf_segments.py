"""Large module tables are a segment behind the linked library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.test_export import chain_json, parameters, run

from tilewright import runtime
from tilewright.runtime import export
from tilewright.runtime.elf_segments import append_segment
from tilewright.runtime.error import ExportError

_BIG = np.arange(2 << 20, dtype="float32").reshape(1 << 10, 1 << 11)


@pytest.fixture
def library(compiled: runtime.Module, tmp_path: Path) -> Path:
    turned = runtime.ndarray.share_memory(_BIG.T)
    params = {"w": np.ones((3, 5), "float32"), "big": turned}
    made = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(2), compiled, "default", params)
    return Path(made.export_library(tmp_path / "x.so"))


def _listed(*command: object) -> str:
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def test_a_strided_parameter_is_written_in_row_major_order(library: Path) -> None:
    loaded = parameters(runtime.load_module(library))["big"]
    assert loaded.is_contiguous and (loaded.numpy() == _BIG.T).all()


def test_the_linker_sees_no_weights(compiled: runtime.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    link = export.run_compiler

    def watched(command: list[str]) -> None:
        link(command)
        sizes.extend(Path(part).stat().st_size for part in command if Path(part).is_file() and "." in part)

    monkeypatch.setattr(export, "run_compiler", watched)
    params = {"big": _BIG}
    made = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(0), compiled, "default", params)
    made.export_library(tmp_path / "x.so", cc="cc")
    assert sizes and max(sizes) < 1 << 20


def test_tools_see_a_section_and_a_symbol(library: Path) -> None:
    assert ".tilewright " in _listed("readelf", "-SW", library)
    row = next(row for row in _listed("nm", "-D", "-S", library).splitlines() if "__tvm_dev_mblob" in row)
    assert int(row.split()[1], 16) > _BIG.nbytes
    assert runtime.library_info(library).parameters["big"].shape == _BIG.T.shape


@pytest.mark.skipif(shutil.which("strip") is None, reason="needs strip")
def test_a_stripped_library_has_its_weights(library: Path) -> None:
    subprocess.run(["strip", str(library)], check=True)
    assert (parameters(runtime.load_module(library))["big"].numpy() == _BIG.T).all()


@pytest.mark.parametrize("lost", [65, 100, 4096, 1 << 20, 8 << 20])
def test_a_library_cut_short_is_refused(library: Path, lost: int) -> None:
    """More than the checksum at the end is missing, which the loader passes over unless it is asked to verify."""
    data = library.read_bytes()
    library.write_bytes(data[:-lost])
    with pytest.raises(runtime.TVMError, match="truncated"):
        runtime.load_module(library)


def test_a_library_without_a_place_is_refused(kernel_library: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(kernel_library, tmp_path / "x.so"))
    with pytest.raises(ExportError, match=r"the linker dropped the section \.note\.tilewright"):
        append_segment(copy, lambda path: None)


def test_networks_run_from_the_segment(library: Path) -> None:
    np.testing.assert_array_equal(run(runtime.load_module(library)), np.full((3, 5), 4))


_MAGIC = (0xDD5E40F096B4A13F).to_bytes(8, "little")  # with which an array's header begins


def _headers(data: bytes) -> list[int]:
    """Return where headers of arrays begin, behind the linked code."""
    found, at = [], data.find(_MAGIC)
    while at >= 0:
        found.append(at)
        at = data.find(_MAGIC, at + 1)
    return found


def test_opening_reads_nothing_between_weights(library: Path) -> None:
    """Headers are read together, before the weights: those between them, of zeros here, are for other readers."""
    data = bytearray(library.read_bytes())
    *_, small, padding, big = _headers(data)
    assert data.count(b"__headers") == 1 and small < padding < big
    for at in (padding, big):
        data[at : at + 8] = bytes(8)
    library.write_bytes(data)
    loaded = parameters(runtime.load_module(library))
    assert sorted(loaded) == ["big", "w"] and (loaded["big"].numpy() == _BIG.T).all()
    assert (loaded["w"].numpy() == 1).all()


def test_what_other_readers_find_between_weights_are_the_same_headers(library: Path) -> None:
    data = library.read_bytes()
    first, *copies = _headers(data)
    together, between = copies[: len(copies) // 2], copies[len(copies) // 2 :]
    sizes = [b - a for a, b in zip(together, [*together[1:], between[0]], strict=True)]
    assert together[0] < first + 64 and len(together) == 3  # a small array, zeros, and the large one
    for copy, at, size in zip(together, between, sizes, strict=True):
        assert data[copy : copy + size] == data[at : at + size]


@pytest.mark.parametrize("place", [24, 32, 48])  # dimensions and type, the first extent, bytes
def test_a_damaged_header_is_refused(library: Path, place: int) -> None:
    data = bytearray(library.read_bytes())
    small = _headers(data)[1]
    data[small + place : small + place + 8] = b"\xff" * 8
    library.write_bytes(data)
    with pytest.raises(runtime.TVMError, match=r"damaged array|ends too early|unknown|type"):
        parameters(runtime.load_module(library))
