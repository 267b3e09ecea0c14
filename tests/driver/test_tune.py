"""``tilewright tune``, ``compile --records`` and ``records``, on a model of two layers."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.driver.command import fails, tilewright
from tests.report.pages import data_of

import tilewright as tvm
from tilewright import relay
from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.autotvm.record import load_from_file
from tilewright.autotvm.task.dispatcher import FallbackContext
from tilewright.autotvm.task.space import ConfigEntity
from tilewright.relay.visitor import post_order
from tilewright.report.model import ModelPage


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution and a product."""
    rng = np.random.default_rng(0)
    weights = {"w": (32, 16, 3, 3), "v": (512, 24)}
    initializers = [numpy_helper.from_array(rng.random(s, dtype="float32"), n) for n, s in weights.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], strides=[2, 2], name="conv"),
        helper.make_node("Flatten", ["c"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "v"], ["y"], name="product"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16, 9, 9])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 24])
    path = tmp_path_factory.mktemp("tune") / "net.onnx"
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], initializers), opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(model, path)
    return path


def in_effect(config: ConfigEntity) -> str:
    """What the kernel of 32 channels says of a configuration: chunks that do not divide the blocks are of one block."""
    blocks = 32 // config["tile_oc"].size[-1]
    chunks = config["tile_chunks"].size[-1]
    return config.summary().replace(f"tile_chunks {chunks}", f"tile_chunks {1 if blocks % chunks else chunks}")


def test_a_model_is_tuned_and_compiled_with_the_records(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, page, folder = tmp_path / "r.jsonl", tmp_path / "page.html", tmp_path / "kept"
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(folder))
    asked = ("tune", network, "-o", records, "--trials", "4", "--tuner", "random", "--report", page, "--json")
    done = tilewright(*asked)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    trials = list(load_from_file(tmp_path / "r.trials.jsonl"))
    assert told["trials"] == len(trials) > 0
    assert {t["template"] for t in told["tasks"]} >= {inp.task.name for inp, _ in trials}
    kept = list(load_from_file(records))
    assert told["network"]["records"] == len(kept)
    assert told["network"]["tuned_seconds"] <= told["network"]["untuned_seconds"]  # the loser is dropped
    assert "<svg" in page.read_text()
    if kept:
        assert len(list(folder.glob("*/records.jsonl"))) == 1
    again = json.loads(tilewright(*asked).stdout)
    before, trials = len(trials), list(load_from_file(tmp_path / "r.trials.jsonl"))
    assert len(trials) >= before
    assert again["trials"] <= 4
    library = tmp_path / "net.so"
    compiled = tilewright("compile", network, "-o", library, "--records", tmp_path / "r.trials.jsonl", "--json")
    assert compiled.returncode == 0, compiled.stderr
    chosen = {kernel["schedule"] for kernel in json.loads(compiled.stdout)["kernels"].values()}
    shown = {"conv2d_NCHWc.x86": in_effect, "dense_pack.x86": ConfigEntity.summary}
    # Where a busy machine saw the most time: one or both of these, or a kernel of other operators.
    for template in shown.keys() & {inp.task.name for inp, _ in trials}:
        of_template = [(fmean(res.costs), inp.config) for inp, res in trials if inp.task.name == template]
        assert shown[template](min(of_template, key=lambda trial: trial[0])[1]) in chosen


def test_files_of_records_are_merged_thinned_out_and_shown(tmp_path: Path) -> None:
    line = (
        '{"input": ["llvm", "t", [["TENSOR", [8, 8], "float32"]], {}], "config": {"index": 1, "code_hash": null, '
        '"entity": [["tile", "sp", [-1, 4]]]}, "result": [[%s], 0, 0.5, %d], "version": 0.2, "tvm_version": "0.8.0"}\n'
    )
    first, second, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "out.jsonl"
    first.write_text(line % ("0.5", 1) + line % ("0.25", 2))
    second.write_text(line % ("0.25", 2) + line % ("0.125", 3))
    assert tilewright("records", "merge", first, second, "-o", out).returncode == 0
    assert [r.costs for _, r in load_from_file(out)] == [(0.5,), (0.25,), (0.125,)]
    assert tilewright("records", "best", out, "-o", out).returncode == 0
    assert [r.costs for _, r in load_from_file(out)] == [(0.125,)]
    shown = tilewright("records", "show", first).stdout.splitlines()
    assert shown[1].split("\t")[:6] == ["t", "8x8", "250.0000", "2", "0", "tile 4"]


def test_records_of_kernels_are_shown_by_their_operators(tmp_path: Path) -> None:
    from tilewright.relay.backend.kernel_task import kernel_workload

    x = relay.var("p0", shape=(3, 5))
    func = relay.Function([x], relay.nn.relu(relay.exp(x))).with_attr("Primitive", 1)
    template, text = kernel_workload(relay.transform.InferType()(tvm.IRModule.from_expr(func))["main"])
    line = {
        "input": ["llvm", template, [text], {}],
        "config": {"index": 0, "code_hash": None, "entity": [["threads", "ot", False]]},
        "result": [[0.25], 0, 0.5, 1], "version": 0.2, "tvm_version": "0.8.0",
    }  # fmt: skip
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    shown = tilewright("records", "show", tmp_path / "a.jsonl").stdout.splitlines()
    assert shown[1].split("\t")[:2] == ["kernel.cpu", "exp relu 3x5"]


def test_the_page_says_which_record_a_schedule_is_of(tmp_path: Path) -> None:
    from tilewright.relay.backend.kernel_task import kernel_workload

    x = relay.var("p0", shape=(3, 5))
    func = relay.Function([x], relay.nn.relu(relay.exp(x)))
    fused = relay.transform.FuseOps(2)(relay.transform.InferType()(tvm.IRModule.from_expr(func)))
    (kernel,) = (c.op for c in post_order(fused["main"]) if isinstance(getattr(c, "op", None), relay.Function))
    template, text = kernel_workload(kernel)
    line = {
        "input": ["llvm", template, [text], {}],
        "config": {"index": 0, "code_hash": None, "entity": [["threads", "ot", False]]},
        "result": [[2.5e-4], 0, 0.5, 1], "version": 0.2, "tvm_version": "0.8.0",
    }  # fmt: skip
    records = tmp_path / "records.jsonl"
    records.write_text(json.dumps(line) + "\n")
    for context, why in (
        (ApplyHistoryBest(str(records)), "a tuning record of the kernel, 0.25 ms where it was measured"),
        (FallbackContext(), "the untuned choice: no tuning records are in force"),
    ):
        with context:
            factory = relay.build(tvm.IRModule.from_expr(func), "llvm")
        page = ModelPage("network")
        page.add_build(factory, factory.build_report)
        page.write(tmp_path / "page.html")
        assert [line["reason"] for line in data_of(tmp_path / "page.html")["kernels"]] == [why]
        assert f"<td>1 kernel</td><td>schedule</td><td>{why}</td>" in (tmp_path / "page.html").read_text()


def test_wrong_use_is_said(network: Path, tmp_path: Path) -> None:
    fails(tilewright("tune", network, "--tuner", "best"), "auto, xgb, ga, random, grid")
    fails(tilewright("compile", network, "-o", tmp_path / "n.so", "--records", tmp_path / "none"), "no such file")
    (tmp_path / "bad").write_text("[1]\n")
    fails(tilewright("records", "show", tmp_path / "bad"), "not a tuning record")
