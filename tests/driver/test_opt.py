"""``tilewright opt``."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from tests.driver.command import DIGITS, fails, tilewright

import tilewright as tvm
from tilewright import relay
from tilewright.driver.opt import OptOptions, optimize_file, parse_passes, read_module
from tilewright.ir.errors import TilewrightError

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 8), float32], %w: Tensor[(4, 8), float32]) {
  nn.relu(nn.dense(%x, %w, units=4))
}
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "model.relay"
    path.write_text(TEXT)
    return path


def printed(capsys: pytest.CaptureFixture[str], *passes: str, file: Path, **options: object) -> str:
    verbose = bool(options.pop("verbose", False))
    optimize_file(OptOptions(file, list(passes), **options), verbose)  # type: ignore[arg-type]
    return capsys.readouterr().out


def test_the_command_prints_a_module_after_passes(text: Path) -> None:
    result = tilewright("opt", text, "--pass", "FuseOps(fuse_opt_level=2),LabelOps", "--verify", "--target", "llvm")
    assert result.returncode == 0, result.stderr
    assert "Primitive=1, hash=" in result.stdout
    fails(tilewright("opt", text, "--pass", "FuseOp"), "there is no pass 'FuseOp'", "did you mean", "FuseOps")


def test_text_json_and_onnx_are_told_apart(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json, copy = tmp_path / "model", tmp_path / "copy.txt"
    json.write_text(tvm.ir.save_json(relay.fromtext(TEXT)))
    copy.write_bytes(DIGITS.read_bytes())
    module = relay.transform.InferType()(relay.fromtext(TEXT))
    assert printed(capsys, file=text) == printed(capsys, file=json) == module.astext(show_meta_data=False) + "\n"
    assert "nn.conv2d" in printed(capsys, file=copy)
    json.write_text(tvm.ir.save_json(relay.fromtext(TEXT)["main"]))
    assert "nn.dense" in printed(capsys, file=json)


def test_what_is_written_is_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model goes through half of the passes, to a file, and through the others."""
    half = tmp_path / "half.relay"
    assert printed(capsys, "optimize", file=DIGITS, output=half) == ""
    assert printed(capsys, "fuse", file=half) == printed(capsys, "optimize", "fuse", file=DIGITS)


def test_kernels_are_printed_and_go_through_passes_of_loops(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "optimize,fuse,LabelOps,LowerTE('llvm'),Simplify", file=text, verify=True)
    assert "@tvmgen_default_fused" in out and "primfn(" in out


def test_verbose_prints_after_each_pass(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "InferType", "FuseOps", file=text, verbose=True)
    assert out.index("# after InferType") < out.index("# after FuseOps") < out.index("Primitive=1")


def test_names_and_arguments_of_passes() -> None:
    names = [made.info.name for made in parse_passes("FuseOps(2), ConvertLayout({'nn.conv2d': ['NHWC', 'default']})")]
    assert names == ["FuseOps", "ConvertLayout"]
    assert len(parse_passes("optimize,fuse")) == len(
        [*relay.build_module.optimization_passes(), *relay.build_module.fusion_passes()]
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("fuseops", "no pass 'fuseops'; did you mean FuseOps"),
        ("Xyzzyx", "no pass 'Xyzzyx'; there are AlterOpLayout, "),
        ("FuseOps(level=2)", r"FuseOps\(fuse_opt_level=-1\): got an unexpected keyword argument 'level'"),
        ("FuseOps(n)", "the arguments of FuseOps are literals"),
        ("FuseOps(", "takes passes with commas between"),
        ("", "takes passes with commas between"),
        ("relay.FuseOps", "relay.FuseOps is no pass"),
        ("fuse(2)", "fuse takes no arguments"),
        ("PassContext", "no pass 'PassContext'"),
    ],
)
def test_passes_that_cannot_be_are_refused(given: str, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        parse_passes(given)


def test_files_that_hold_no_module_are_refused(tmp_path: Path, text: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text(tvm.ir.save_json(relay.TensorType((2,))))
    with pytest.raises(TilewrightError, match="holds a TensorType, not a module or a function"):
        read_module(bad)
    bad.write_text("def @main(")
    with pytest.raises(TilewrightError, match="bad"):
        read_module(bad)
    with pytest.raises(OSError, match="no such file"):
        read_module(tmp_path / "none")
    with pytest.raises(typer.BadParameter, match="--input-shape is for ONNX models"):
        read_module(text, ["x:1"])
