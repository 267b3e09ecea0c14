"""Config spaces, dispatch contexts and records against TVM 0.8's texts, and by what they do."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import autotvm, te, topi
from tilewright.autotvm.record import MeasureInput, MeasureResult, decode, encode, load_from_buffer, pick_best
from tilewright.autotvm.task.space import ConfigEntity, ConfigSpace, FallbackConfigEntity, SplitEntity
from tilewright.ir.errors import TilewrightError
from tilewright.target import Target

MATMUL = ("golden/matmul", (64, 64, 64, "float32"))
SPACE_TEXT = """ConfigSpace (len=98, space_map=
   0 tile_y: Split(policy=factors, product=64, num_outputs=2) len=7
   1 tile_x: Split(policy=factors, product=64, num_outputs=2) len=7
   2 unroll: OtherOption([0, 1]) len=2
)"""
RECORD = (
    '{"input": ["llvm -keys=cpu -link-params=0", "golden/matmul", [64, 64, 64, "float32"], {}], '
    '"config": {"index": 37, "code_hash": null, '
    '"entity": [["tile_y", "sp", [-1, 4]], ["tile_x", "sp", [-1, 32]], ["unroll", "ot", 0]]}, '
    '"result": [[0.00125], 0, 0.5, 1600000000.0], "version": 0.2, "tvm_version": "0.8.0"}'
)


@autotvm.template(MATMUL[0])
def matmul(n: int, m: int, depth: int, dtype: str) -> tuple[te.Schedule, list[te.Tensor]]:
    """A matrix product whose tiles are open."""
    a, b = te.placeholder((n, depth), dtype, name="A"), te.placeholder((depth, m), dtype, name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    cfg = autotvm.get_config()
    y, x = s[c].op.axis
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    cfg.define_knob("unroll", [0, 1])
    yo, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    s[c].reorder(yo, xo, k, yi, xi)
    if cfg["unroll"].val:
        s[c].unroll(yi)
    return s, [a, b, c]


def task() -> autotvm.Task:
    return autotvm.create(MATMUL[0], MATMUL[1], "llvm")


def test_the_space_prints_as_tvms() -> None:
    assert repr(task().config_space) == SPACE_TEXT


def test_a_point_prints_and_is_numbered_as_tvms() -> None:
    space = task().config_space
    assert space is not None
    assert repr(space.get(37)) == "[('tile_y', [-1, 4]), ('tile_x', [-1, 32]), ('unroll', 0)],None,37"
    assert len({repr(space.get(k)) for k in range(len(space))}) == 98
    with pytest.raises(IndexError, match="98 points, index 98"):
        space.get(98)


def test_records_are_tvms_lines() -> None:
    found = decode(RECORD)
    assert found is not None
    inp, result = found
    assert inp.task.workload == ("golden/matmul", 64, 64, 64, "float32")
    assert result == MeasureResult((0.00125,), 0, 0.5, 1600000000.0)
    assert json.loads(encode(inp, result)) == json.loads(RECORD)


def test_records_that_are_none_are_refused() -> None:
    with pytest.raises(TilewrightError, match="not a tuning record"):
        decode('{"input": 3, "version": 0.2}')
    assert decode('{"i": [], "v": 0.1}') is None


@pytest.mark.parametrize("index", [0, 37, 97])
def test_every_point_computes_the_same(index: int) -> None:
    made = task()
    assert made.config_space is not None
    with Target("llvm"):
        s, args = made.instantiate(made.config_space.get(index))
        kernel = tvm.build(s, args, "llvm", name="matmul")
    rng = np.random.default_rng(0)
    a, b = (rng.random((64, 64), dtype=np.float32) for _ in range(2))
    out = tvm.nd.array(np.zeros((64, 64), "float32"))
    kernel["matmul"](tvm.nd.array(a), tvm.nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-5)


def test_the_best_record_applies_to_its_workload_only(tmp_path: Path) -> None:
    slow = RECORD.replace("[0.00125]", "[0.5]").replace("[-1, 4]", "[-1, 1]")
    failed = RECORD.replace("[[0.00125], 0", "[[0.0000001], 4").replace("[-1, 4]", "[-1, 64]")
    workload = decode(RECORD)[0].task.workload  # type: ignore[index]
    with autotvm.apply_history_best(io.StringIO("\n".join([slow, failed, RECORD, "# a comment"]))):
        context = autotvm.DispatchContext.current
        chosen = context.query(Target("llvm"), workload)
        assert chosen["tile_y"].size == [-1, 4]
        assert chosen.cost == 0.00125
        assert context.query(Target("llvm"), ("other",)).is_fallback
    assert autotvm.DispatchContext.current.is_fallback()
    (tmp_path / "all.log").write_text("\n".join([slow, failed, RECORD]))
    pick_best(tmp_path / "all.log", tmp_path / "best.log")
    with open(tmp_path / "best.log") as file:
        assert [result.costs for _, result in load_from_buffer(file)] == [(0.00125,)]


def test_a_topi_template_takes_its_configuration_from_the_context() -> None:
    data, weight = te.placeholder((8, 16), name="A"), te.placeholder((2, 16, 32), name="W")
    with Target("llvm"):
        out = topi.cpu.dense_pack(data, weight, None, "float32")
        fallback = autotvm.DispatchContext.current.query_of([out], Target("llvm"))
        assert fallback is not None
        assert fallback.is_fallback
        workload = out.op.attrs["workload"]
        space = autotvm.create("dense_pack.x86", workload[1:], "llvm").config_space
    assert workload[0] == "dense_pack.x86"
    assert space is not None
    entity = space.get(3)
    record = encode(
        MeasureInput(Target("llvm"), autotvm.Task(workload[0], workload[1:]), entity),
        MeasureResult((1.0,), 0, 1.0, 0.0),
    )
    with Target("llvm"), autotvm.apply_history_best(io.StringIO(record)):
        tuned = topi.cpu.dense_pack(data, weight, None, "float32")
        found = autotvm.DispatchContext.current.query_of([tuned], Target("llvm"))
        assert found is not None
        assert not found.is_fallback
        assert repr(found["tile_m"]) == repr(entity["tile_m"])
        topi.cpu.schedule_dense_pack([tuned])


def test_spaces_of_every_kind() -> None:
    space = ConfigSpace()
    space.define_split("three", 12, num_outputs=3, max_factor=4)
    space.define_split("tails", 7, policy="power2", num_outputs=2)
    space.define_split("given", 12, policy="candidate", num_outputs=2, candidate=[[-1, 3]])
    space.define_reorder("order", ["a", "b", "c"], "all")
    space.define_annotate("mark", ["a", "b"], "try_unroll_vec")
    assert [len(s) for s in space.space_map.values()] == [12, 3, 1, 6, 3]
    entity = space.get(len(space) - 1)
    again = ConfigEntity.from_json_dict(json.loads(json.dumps(entity.to_json_dict())))
    assert repr(again) == repr(entity)
    assert again.get_flatten_feature() == entity.get_flatten_feature()
    with pytest.raises(TilewrightError, match="policy is factors, power2, verbose or candidate"):
        space.define_split("bad", 4, policy="random")


def test_fallback_splits_take_the_largest_divisors_within_limits() -> None:
    cfg = FallbackConfigEntity()
    cfg.define_split("tile", 56, num_outputs=3)
    cfg.fallback_split("tile", [-1, 4, 8])
    assert cfg["tile"].size == [7, 1, 8]
    cfg["tile"] = SplitEntity([-1, 2, 2])
    assert repr(cfg) == "[('tile', [-1, 2, 2])],fallback"


@pytest.mark.parametrize(
    ("limits", "size"), [([-1, 8, 4], [7, 7, 1]), ([-1, -1, 1], [1, 49, 1]), ([2, 1, 1], [49, 1, 1])]
)
def test_the_first_part_of_a_fallback_split_is_what_is_left(limits: list[int], size: list[int]) -> None:
    cfg = FallbackConfigEntity()
    cfg.define_split("tile", 49, num_outputs=3)
    cfg.fallback_split("tile", limits)
    cfg.define_split("tile", 49, num_outputs=3)
    assert cfg["tile"].size == size


def test_a_fallback_split_without_a_divisor_is_refused() -> None:
    cfg = FallbackConfigEntity()
    cfg.define_split("tile", 49, num_outputs=3)
    with pytest.raises(RuntimeError, match="tile: no divisor of 49 is at most 0"):
        cfg.fallback_split("tile", [-1, 1, 0])
