"""Records are TVM 0.8's lines, byte for byte, and states that they are read into are those that were written."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.auto_scheduler.workloads import matmul_as, matmul_relu_as

from tilewright import auto_scheduler, te
from tilewright.auto_scheduler import measure_record
from tilewright.auto_scheduler.compute_dag import ComputeDAG
from tilewright.auto_scheduler.measure import MeasureInput, MeasureResult, recover_measure_input
from tilewright.ir.errors import TilewrightError

TVM_LINE = (
    '{"i": [["[\\"golden_matmul\\", 64]", "llvm -keys=cpu -link-params=0", [1, 64, 64, 0, 0, 0, 0, 0], "", 1, []], '
    '[[], [["SP", 2, 0, 64, [8], 1]]]], "r": [[0.001], 0, 0.2, 1600000000], "v": "v0.6"}\n'
)
"""written by TVM 0.8"""

STEPS = [
    ["CHW", 2, "local"], ["SP", 2, 0, 12, [2, 3, 1], 1], ["SP", 2, 4, 34, [1, 2, 17], 1], ["SP", 2, 8, 17, [1], 1],
    ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]], ["FSP", 3, 0, 1, 1], ["FSP", 3, 2, 2, 1], ["RE", 3, [0, 2, 1, 3]],
    ["CA", 2, 3, 1], ["FU", 3, [0, 1]], ["AN", 3, 0, 3], ["PR", 2, 0, "auto_unroll_max_step$64"], ["AN", 2, 9, 2],
    ["SA", 2, 1, 8, 4], ["CHR", 0, "global", [3]], ["CR", 1],
]  # fmt: skip


def test_a_line_of_tvm_is_written_as_it_was_read() -> None:
    inp, res = measure_record.load_record_from_string(TVM_LINE)
    assert inp.task.workload_key == '["golden_matmul", 64]'
    assert inp.task.hardware_params.num_cores == 1
    assert [c.value for c in res.costs] == [0.001]
    assert measure_record.dump_record_to_string(inp, res) == TVM_LINE


def test_a_task_of_a_record_travels_as_text_under_the_name_that_programs_reach_for() -> None:
    task = measure_record.load_record_from_string(TVM_LINE)[0].task
    there = auto_scheduler._ffi_api.DeserializeSearchTask(auto_scheduler._ffi_api.SerializeSearchTask(task))
    assert (there.workload_key, str(there.target)) == (task.workload_key, str(task.target))


def test_every_step_is_written_as_it_was_read() -> None:
    fields = json.loads(TVM_LINE)
    fields["i"][1][1] = [*STEPS, ["CI", 3], ["RF", 3, 2, 1], ["FFSP", 2, 0, [1, 2], 1, 1]]
    line = json.dumps(fields) + "\n"
    assert measure_record.dump_record_to_string(*measure_record.load_record_from_string(line)) == line


def test_what_is_no_record_is_told() -> None:
    with pytest.raises(TilewrightError, match="not a record of the auto-scheduler"):
        measure_record.load_record_from_string('{"input": 1}')
    broken = TVM_LINE.replace('"SP"', '"XX"')
    with pytest.raises(TilewrightError, match="a record has the step 'XX'; known are AN, FU"):
        measure_record.load_record_from_string(broken)


def test_states_of_records_have_the_loops_of_those_written(tmp_path: Path) -> None:
    task = auto_scheduler.SearchTask(func=matmul_as, args=(12, 34, 17), target="llvm")
    record = json.loads(TVM_LINE)
    record["i"][0][0], record["i"][1][1] = task.workload_key, STEPS[:-3]
    path = tmp_path / "records.json"
    path.write_text(json.dumps(record) + "\n")
    (inp,), (res,) = auto_scheduler.RecordReader(str(path)).read_lines()
    state = recover_measure_input(inp, rebuild_state=True).state
    assert "parallel i.0@j.0@ (0,2)" in str(state)
    assert "vectorize j_c.3 (0,17)" in str(state)
    assert "C.local auto_unroll: 64" in str(state)
    auto_scheduler.save_records(str(path), [MeasureInput(task, state)], [res])
    (_, second), _ = auto_scheduler.RecordReader(str(path)).read_lines()
    assert task.compute_dag.infer_bound_from_state(second.state).state_object == state


def test_the_best_record_of_a_workload_is_found(tmp_path: Path) -> None:
    task = auto_scheduler.SearchTask(func=matmul_as, args=(12, 34, 17), target="llvm")
    other = auto_scheduler.SearchTask(func=matmul_as, args=(6, 34, 17), target="llvm")
    path = str(tmp_path / "records.json")
    for inp, seconds, error in ((task, 2e-3, 0), (task, 1e-3, 0), (task, 1e-9, 4), (other, 4e-4, 0)):
        result = MeasureResult([seconds], error, "", 0.1, 0)
        auto_scheduler.save_records(path, [MeasureInput(inp, inp.compute_dag.init_state)], [result])
    _, best = auto_scheduler.load_best_record(path, task.workload_key)
    assert best is not None and best.mean == 1e-3
    _, compatible = auto_scheduler.load_best_record(path, task.workload_key, include_compatible=True)
    assert compatible is not None and compatible.mean == 4e-4  # half the work: counts twice
    measure_record.distill_record_file(path, str(tmp_path / "best.json"))
    assert [r.mean for _, r in auto_scheduler.load_records(str(tmp_path / "best.json"))] == [1e-3, 4e-4]


def test_computations_print_as_in_tvm_and_travel_between_processes() -> None:
    a, b, c = matmul_as(64, 64, 64)
    dag = ComputeDAG([a, b, c])
    assert str(dag) == "A = PLACEHOLDER [64, 64]\nB = PLACEHOLDER [64, 64]\nC(i, j) += (A[i, k]*B[k, j])\n"
    copied = pickle.loads(pickle.dumps(ComputeDAG(matmul_relu_as(5, 6, 7))))
    assert str(copied) == str(ComputeDAG(matmul_relu_as(5, 6, 7)))
    assert copied.workload_key() == ComputeDAG(matmul_relu_as(5, 6, 7)).workload_key()


def test_steps_print_as_a_program_that_schedules() -> None:
    """The printed program, run on a new schedule, makes the loops that the state has."""
    a, b, c = matmul_as(12, 34, 17)
    dag = ComputeDAG([a, b, c])
    state = dag.get_init_state()
    local = state.cache_write(c, "local")
    i, _, k = state[local].iters
    state.split(local, i, [3])
    state.split(local, k, [4])
    state.parallel(c, state.fuse(c, state[c].iters[:2]))
    code = dag.print_python_code_from_state(state)
    schedule = te.create_schedule(c.op)
    exec(code, {"s": schedule, "C": c, "te": te})
    expected, _ = dag.apply_steps_from_state(state)
    names = [[iv.var.name for iv in stage.leaf_iter_vars] for stage in expected.stages]
    assert [[iv.var.name for iv in stage.leaf_iter_vars] for stage in schedule.stages] == names


def test_flops_count_arithmetic_of_the_results_kind_only() -> None:
    assert ComputeDAG(matmul_as(8, 9, 10)).flop_ct == 2 * 8 * 9 * 10
    assert ComputeDAG(matmul_relu_as(8, 9, 10)).flop_ct == 2 * 8 * 9 * 10 + 8 * 9
    x = te.placeholder((8,), name="x")
    shifted = te.compute((8,), lambda i: x[(i + 3) % 8] * 2.0, name="shifted")
    assert ComputeDAG([x, shifted]).flop_ct == 8


def test_functions_of_one_name_inside_of_different_functions_are_two_workloads() -> None:
    def square() -> Any:
        def made() -> Any:
            return list(matmul_as(4, 4, 4))

        return auto_scheduler.register_workload(made, override=True)

    def tall() -> Any:
        def made() -> Any:
            return list(matmul_as(8, 4, 4))

        return auto_scheduler.register_workload(made, override=True)

    tasks = [auto_scheduler.SearchTask(func=func, target="llvm") for func in (square(), tall())]
    assert [int(t.compute_dag.tensors[-1].shape[0]) for t in tasks] == [4, 8]
