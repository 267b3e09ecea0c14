"""Every program that is drawn computes what numpy does, on shapes that nothing divides; its loops are known before."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.auto_scheduler.workloads import WORKLOADS

import tilewright as tvm
from tilewright import auto_scheduler, te, topi
from tilewright.auto_scheduler import mutation
from tilewright.auto_scheduler.layout_rewrite import LayoutRewriteOption
from tilewright.auto_scheduler.loop_bounds import LoopBounds
from tilewright.auto_scheduler.loop_nest import ROOT


def policy_of(
    name: str, seed: int, option: int = LayoutRewriteOption.INSERT_TRANSFORM_STAGE
) -> auto_scheduler.SketchPolicy:
    work = WORKLOADS[name]
    hardware = auto_scheduler.HardwareParams(num_cores=2, target="llvm")
    task = auto_scheduler.SearchTask(
        func=work.function, args=work.args, target="llvm", hardware_params=hardware, layout_rewrite_option=option
    )
    return auto_scheduler.SketchPolicy(task, seed=seed, verbose=0)


def drawn(policy: auto_scheduler.SketchPolicy, count: int) -> list:
    """Different programs, some of them mutated, as evolution makes them."""
    found = {}
    rng = random.Random(7)
    while len(found) < count:
        state = policy.random_state()
        for mutate, _ in policy.mutations if state is not None else ():
            state = (mutate(policy, state, rng) if rng.random() < 0.3 else None) or state
        if state is not None and not mutation.ask.has_nested_parallel(state):
            found[state.transform_steps] = state
    return list(found.values())


@pytest.mark.parametrize("name", WORKLOADS)
def test_random_programs_compute_what_numpy_does(name: str) -> None:
    work, policy = WORKLOADS[name], policy_of(name, 3)
    dag = policy.search_task.compute_dag
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal([int(d) for d in t.shape]).astype("float32") for t in dag.tensors[:-1]]
    expected = np.asarray(work.expected(*inputs))
    scale = max(1.0, float(abs(expected).max()))
    for state in drawn(policy, 4):
        for option in (LayoutRewriteOption.NO_REWRITE, LayoutRewriteOption.INSERT_TRANSFORM_STAGE):
            schedule, args = dag.apply_steps_from_state(state, option)
            function = tvm.build(schedule, args, "llvm")
            out = tvm.nd.array(np.full(expected.shape, np.nan, "float32"))
            function(*[tvm.nd.array(i) for i in inputs], out)
            assert abs(out.numpy() - expected).max() <= 1e-5 * scale, f"{state}"


@pytest.mark.parametrize("name", WORKLOADS)
def test_loops_are_as_long_as_the_schedule_makes_them(name: str) -> None:
    policy = policy_of(name, 5)
    dag = policy.search_task.compute_dag
    for state in drawn(policy, 12):
        quick = LoopBounds(state, dag).bounded()
        assert str(quick) == str(dag.infer_bound(state))


def test_lanes_are_summed_in_parts_and_all_of_a_softmax_is_inside_its_rows() -> None:
    """16 lanes are 4 parts of 4; what two stages read is computed inside the loop that both are inside."""
    work = WORKLOADS["softmax of whole vectors"]
    hardware = auto_scheduler.HardwareParams(num_cores=2, vector_unit_bytes=64, target="llvm")
    task = auto_scheduler.SearchTask(func=work.function, args=work.args, target="llvm", hardware_params=hardware)
    ratios = dict.fromkeys(("lane_parts_ratio", "compute_inside_ratio", "register_tile_ratio"), 1.0)
    policy = auto_scheduler.SketchPolicy(task, seed=0, params={**ratios, "vector_reduction_weight": 1e6}, verbose=0)
    for _ in range(8):
        state = policy.random_state()
        assert state is not None
        names = [stage.op.name for stage in state.stages]
        assert names.count("T_softmax_expsum.rf") >= 2
        loops = [it for stage in state.stages if stage.op.name == "T_softmax_expsum" for it in stage.iters]
        assert loops[-1].extent in (2, 4, 8)
        assert {stage.op.name for stage in state.stages if stage.compute_at == ROOT} == {"A", "T_softmax_norm"}


def test_layouts_of_constants_are_rewritten_for_the_caller() -> None:
    """The kernel takes B in the order of its loops: dimension and extent of each part tell where an element went."""
    policy = policy_of("matmul", 11, LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED)
    dag = policy.search_task.compute_dag
    a, b = (np.random.default_rng(2).random([int(d) for d in t.shape], np.float32) for t in dag.tensors[:2])
    for state in drawn(policy, 4):
        rewritten = dag.rewrite_layout_from_state(state)
        (layout,) = [op.attrs["new_placeholder_layout"] for op in rewritten.ops if "new_placeholder_layout" in op.attrs]
        schedule, args = dag.apply_steps_from_state(state, LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED)
        packed = in_layout(b, "kj", layout)
        assert packed.shape == tuple(int(d) for d in args[1].shape)
        out = tvm.nd.array(np.zeros((12, 34), "float32"))
        tvm.build(schedule, args, "llvm")(tvm.nd.array(a), tvm.nd.array(packed), out)
        np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-5)


def test_a_matrix_is_packed_in_vectors() -> None:
    """Rows of a transposed matrix become vectors: gathered columns, of which TransposeLoads makes rows and shuffles."""
    a, b = te.placeholder((16, 64), name="A"), te.placeholder((64, 64), name="B")
    dag = auto_scheduler.ComputeDAG([a, b, topi.nn.dense(a, b)])
    state = dag.get_init_state()
    product = state.stages[-1].op
    i, j, k = state.stages[-1].iters
    j_outer, j_inner = state.split(product, j, [16])
    k_outer, k_inner = state.split(product, k, [8])
    state.reorder(product, [i, j_outer, k_outer, k_inner, j_inner])
    state.vectorize(product, j_inner)
    schedule, args = dag.apply_steps_from_state(state.state_object, LayoutRewriteOption.INSERT_TRANSFORM_STAGE)
    text = str(tvm.lower(schedule, args))
    assert "auto_scheduler_layout_transform[ramp(" in text, text
    x, y = (np.random.default_rng(3).random([int(d) for d in t.shape], np.float32) for t in (a, b))
    out = tvm.nd.array(np.zeros((16, 64), "float32"))
    tvm.build(schedule, args, "llvm")(tvm.nd.array(x), tvm.nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y.T, rtol=1e-5)


def in_layout(values: np.ndarray, axes: str, layout: str) -> np.ndarray:
    """``values`` with the named axes in a layout such as ``2k4j3k``."""
    parts = auto_scheduler.compute_dag.rewriting.parse_layout(layout)
    shape, order = [], []
    for axis in axes:
        for place, (extent, name) in enumerate(parts):
            if name == axis:
                shape.append(extent)
                order.append(place)
    return np.ascontiguousarray(values.reshape(shape).transpose(np.argsort(order)))
