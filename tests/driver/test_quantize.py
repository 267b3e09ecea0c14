"""``tilewright quantize``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.driver.command import DIGITS, tilewright


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("samples") / "digits.npz"
    with np.load(DIGITS.parent / "heldout.npz") as held:
        np.savez(path, pixels=(held["pictures"][:16, None] / 16).astype("float32"), labels=held["labels"][:16])
    return path


def test_it_writes_a_model_and_prints_a_table(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "int8.onnx"
    result = tilewright("quantize", DIGITS, "-o", output, "--data", data)
    assert result.returncode == 0, result.stderr
    onnx.checker.check_model(output)
    heads, *lines = result.stdout.splitlines()
    assert heads.startswith("layer\toperator\tsignal/noise (dB)\toutput error\taccuracy lost")
    assert sum(line.split("\t")[1] in ("Conv", "Gemm") for line in lines) == 5
    rows = dict(line.split("\t") for line in lines if line.count("\t") == 1)
    assert rows["quantized"] == "5 layers and 3 operators between them"
    assert float(rows["accuracy"].split("%")[0]) > 95


def test_json_has_what_the_table_has_and_the_tensors(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "int8.onnx"
    node = "/network/features/features.0/Conv"
    result = tilewright("quantize", DIGITS, "-o", output, "--data", data, "--exclude", node, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["in_float"] == [{"node": node, "operator": "Conv", "reason": "excluded"}]
    assert len(report["layers"]) == 4 and report["bytes"] < 0.5 * report["float_bytes"]
    assert all(t["low"] <= 0 <= t["high"] for t in report["tensors"].values())


def test_a_folder_of_pictures_is_samples(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "pictures"
    folder.mkdir()
    with np.load(DIGITS.parent / "heldout.npz") as held:
        for i, picture in enumerate(held["pictures"][:3]):
            image.fromarray((picture * 15).astype("uint8")).save(folder / f"{i}.png")
    output = tmp_path / "int8.onnx"
    options = ("--data", folder, "--table-seconds", "0", "--json")
    result = tilewright("quantize", DIGITS, "-o", output, *options)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert "layers" not in report
    assert report["tensors"]["pixels"]["high"] == pytest.approx(240 / 255, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "{empty}"], "there are no samples to calibrate with"),
        (["--data", "{data}", "--exclude", "/network/hidden/Gem"], "did you mean '/network/hidden/Gemm'?"),
        (["--data", "{data}", "--method", "max"], "method is one of minmax, entropy, percentile, mse"),
        (["--data", "{empty}/no.npz"], "no such file or folder"),
    ],
)
def test_an_error_is_one_message_and_leaves_no_file(
    options: list[str], message: str, data: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    output = tmp_path / "int8.onnx"
    result = tilewright("quantize", DIGITS, "-o", output, *(o.format(empty=empty, data=data) for o in options))
    assert result.returncode == 1 and message in " ".join(result.stderr.split()), result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["empty"]


def test_dynamic_needs_no_samples_and_static_says_that_it_does(tmp_path: Path) -> None:
    output, page = tmp_path / "int8.onnx", tmp_path / "page.html"
    result = tilewright("quantize", DIGITS, "-o", output, "--dynamic", "--report", page)
    assert result.returncode == 0, result.stderr
    assert "quantized\t2 layers" in result.stdout and result.stdout.count("in float: ") == 3
    assert "/network/features/features.0/Conv" in page.read_text()
    result = tilewright("quantize", DIGITS, "-o", output)
    assert result.returncode == 1 and "--data is missing" in result.stderr


def test_the_page_has_the_layers(data: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = tilewright("quantize", DIGITS, "-o", tmp_path / "int8.onnx", "--data", data, "--report", page, "-q")
    assert result.returncode == 0 and not result.stdout, result.stderr
    text = page.read_text()
    assert text.count("<i style=") == 5 and "accuracy: " in text and "signal/noise" in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["int8.onnx", "page.html"]


def test_weights_of_few_bits_need_no_samples(tmp_path: Path) -> None:
    output = tmp_path / "int4.onnx"
    result = tilewright("quantize", DIGITS, "-o", output, "--weights", "int4", "--block", "16", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    kinds = [node.op_type for node in onnx.load(output).graph.node]
    assert kinds.count("MatMulNBits") == len(report["layers"]) > 0
    assert all(0 < layer["error"] < 0.2 for layer in report["layers"])
    assert any(line["operator"] == "Conv" for line in report["in_float"])


def test_methods_that_need_samples_ask_for_them(tmp_path: Path) -> None:
    result = tilewright("quantize", DIGITS, "-o", tmp_path / "x.onnx", "--weights", "int4", "--method", "gptq")
    assert result.returncode == 1
    assert "method gptq needs data" in result.stderr
