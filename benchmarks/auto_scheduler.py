"""How fast what the auto-scheduler finds is, beside our own schedules.

    python -m benchmarks.auto_scheduler --trials 200 --threads 1 --cases dense conv

The auto-scheduler begins with plain computations of `topi` and `te` in the layouts of the network (NHWC), with no
template; weights are brought into the layout that its schedule reads best, once, as a network's constants are, and a
matrix that is no constant in the kernel itself. Our own
schedule is the heaviest kernel that `relay.build` makes of the operator, with weights as constants and the layouts that
it chooses, without Winograd and Strassen, which are other algorithms. Both run in turns, each several times; a ratio is
that of the least times.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import auto_scheduler, relay, te, topi
from tilewright.auto_scheduler.layout_rewrite import LayoutRewriteOption
from tilewright.auto_scheduler.workload_registry import register_workload_tensors
from tilewright.doctor.work import kernels_of
from tilewright.runtime.module import set_num_threads
from tilewright.target.features import features

TURNS = 15


@dataclass(frozen=True)
class Case:
    """One computation: its plain form (inputs and result), and the same as a network."""

    name: str
    plain: Callable[[], list[te.Tensor]]
    network: Callable[[], relay.Expr]
    layouts: int = LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED


def _constant(*shape: int) -> relay.Expr:
    return relay.const(np.random.default_rng(0).random(shape, np.float32))


def conv(size: int, channels: int, filters: int, kernel: int, stride: int = 1) -> Case:
    """A convolution of a square image."""
    pad = kernel // 2

    def plain() -> list[te.Tensor]:
        data = te.placeholder((1, size, size, channels), name="data")
        weight = te.placeholder((kernel, kernel, channels, filters), name="weight")
        return [data, weight, topi.nn.conv2d_nhwc(data, weight, stride, pad, 1)]

    def network() -> relay.Expr:
        data = relay.var("data", shape=(1, channels, size, size))
        weight = _constant(filters, channels, kernel, kernel)
        return relay.nn.conv2d(data, weight, strides=(stride, stride), padding=(pad, pad), kernel_size=(kernel, kernel))

    return Case(f"conv {channels}x{size}x{size} -> {filters}, {kernel}x{kernel}/{stride}", plain, network)


def depthwise(size: int, channels: int, stride: int = 1) -> Case:
    """A 3x3 convolution of each channel on its own."""

    def plain() -> list[te.Tensor]:
        data = te.placeholder((1, size, size, channels), name="data")
        weight = te.placeholder((3, 3, channels, 1), name="weight")
        return [data, weight, topi.nn.depthwise_conv2d_nhwc(data, weight, stride, 1, 1)]

    def network() -> relay.Expr:
        data = relay.var("data", shape=(1, channels, size, size))
        weight = _constant(channels, 1, 3, 3)
        return relay.nn.conv2d(
            data, weight, strides=(stride, stride), padding=(1, 1), kernel_size=(3, 3), groups=channels,
            channels=channels,
        )  # fmt: skip

    return Case(f"depthwise {channels}x{size}x{size}/{stride}", plain, network)


def dense(rows: int, columns: int, inner: int) -> Case:
    """A product with constant weights."""

    def plain() -> list[te.Tensor]:
        a, b = te.placeholder((rows, inner), name="A"), te.placeholder((columns, inner), name="B")
        return [a, b, topi.nn.dense(a, b)]

    def network() -> relay.Expr:
        return relay.nn.dense(relay.var("a", shape=(rows, inner)), _constant(columns, inner))

    return Case(f"dense {rows}x{columns}x{inner}", plain, network)


def batch_matmul(batch: int, rows: int, columns: int, inner: int) -> Case:
    """Products of the matrices of two batches, one transposed; nothing is constant."""

    def plain() -> list[te.Tensor]:
        a, b = te.placeholder((batch, rows, inner), name="A"), te.placeholder((batch, columns, inner), name="B")
        return [a, b, topi.nn.batch_matmul(a, b)]

    def network() -> relay.Expr:
        a, b = relay.var("a", shape=(batch, rows, inner)), relay.var("b", shape=(batch, columns, inner))
        return relay.nn.batch_matmul(a, b)

    name = f"batch_matmul {batch}x{rows}x{columns}x{inner}"
    return Case(name, plain, network, LayoutRewriteOption.INSERT_TRANSFORM_STAGE)


def softmax(rows: int, columns: int) -> Case:
    """Softmax of rows."""

    def plain() -> list[te.Tensor]:
        a = te.placeholder((rows, columns), name="A")
        return [a, topi.nn.softmax(a, axis=1)]

    return Case(
        f"softmax {rows}x{columns}", plain, lambda: relay.nn.softmax(relay.var("a", shape=(rows, columns)), axis=1)
    )


def layer_norm(rows: int, columns: int) -> Case:
    """Layer normalization of rows."""

    def tensors() -> tuple[te.Tensor, ...]:
        return (
            te.placeholder((rows, columns), name="A"), te.placeholder((columns,), name="G"),
            te.placeholder((columns,), name="B"),
        )  # fmt: skip

    def plain() -> list[te.Tensor]:
        a, gamma, beta = tensors()
        return [a, gamma, beta, topi.nn.layer_norm(a, gamma, beta, (1,), 1e-5)]

    def network() -> relay.Expr:
        return relay.nn.layer_norm(relay.var("a", shape=(rows, columns)), _constant(columns), _constant(columns))

    return Case(f"layer_norm {rows}x{columns}", plain, network)


CASES = [
    *(conv(28, 128, 128, 3), conv(14, 256, 512, 1), conv(56, 64, 128, 3, 2), conv(56, 64, 64, 1), conv(56, 256, 64, 1)),
    *(conv(14, 256, 256, 3), conv(7, 512, 512, 3), conv(28, 128, 512, 1), conv(7, 512, 2048, 1), conv(112, 32, 16, 1)),
    *(conv(112, 3, 32, 3, 2), conv(28, 32, 96, 5)),
    *(depthwise(28, 192), depthwise(112, 32), depthwise(56, 144, 2), depthwise(14, 384), depthwise(14, 576, 2)),
    depthwise(7, 960),
    *(dense(128, 768, 768), dense(1, 1000, 2048), dense(128, 3072, 768), dense(128, 768, 3072), dense(1, 4096, 4096)),
    *(dense(16, 512, 512), dense(64, 1000, 1280), dense(197, 768, 768)),
    *(batch_matmul(12, 128, 128, 64), batch_matmul(12, 128, 64, 128), batch_matmul(12, 197, 197, 64)),
    *(batch_matmul(12, 1, 128, 64), batch_matmul(8, 64, 64, 32), batch_matmul(4, 256, 256, 128)),
    *(softmax(1536, 128), softmax(1, 1000), softmax(64, 64), softmax(2364, 197)),
    *(layer_norm(128, 768), layer_norm(1, 768), layer_norm(197, 768), layer_norm(64, 1024)),
]


def own_kernel(case: Case) -> Callable[[], float]:
    """A function that measures our own schedule: least seconds of a few calls."""
    body = case.network()
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    config = {"relay.conv2d.winograd": "off", "relay.dense.strassen": False}
    with tvm.transform.PassContext(opt_level=3, config=config):
        factory = relay.build(mod, "llvm")
    kernel = max(kernels_of(factory), key=lambda k: (k.flops, k.bytes))
    types = [*kernel.inputs, *kernel.outputs]
    return _timed(factory.get_lib(), kernel.name, [t.concrete_shape for t in types])


def _timed(library: Any, name: str, shapes: Sequence[Sequence[int]]) -> Callable[[], float]:
    rng = np.random.default_rng(0)
    arrays = [tvm.nd.array(rng.random([int(d) for d in s], np.float32)) for s in shapes]
    evaluate = library.time_evaluator(name, tvm.cpu(), number=1, repeat=5, min_repeat_ms=2)
    return lambda: float(min(evaluate(*arrays).results))


def found_kernel(case: Case, trials: int, threads: int, log: str) -> Callable[[], float]:
    """The same of what the auto-scheduler finds in so many trials."""
    tensors = case.plain()
    dag = auto_scheduler.ComputeDAG(tensors)
    key = register_workload_tensors(dag.workload_key(), tensors)
    task = auto_scheduler.SearchTask(
        workload_key=key, compute_dag=dag, target="llvm",
        hardware_params=auto_scheduler.HardwareParams(num_cores=threads, target="llvm"),
        layout_rewrite_option=case.layouts,
    )  # fmt: skip
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.XGBModel(num_warmup_sample=20), seed=0, verbose=0)
    options = auto_scheduler.TuningOptions(
        trials, num_measures_per_round=max(8, trials // 6), verbose=0,
        runner=auto_scheduler.LocalRunner(number=1, repeat=5, min_repeat_ms=4),
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )  # fmt: skip
    task.tune(options, policy)
    best, _ = auto_scheduler.load_best_record(log, key)
    if best is None:
        raise SystemExit(f"{case.name}: no trial of {trials} worked; see {log}")
    schedule, args = dag.apply_steps_from_state(best.state, task.layout_rewrite_option)
    library = tvm.build(schedule, args, "llvm")
    return _timed(library, library.entry_name, [a.shape for a in args])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cases", nargs="*", default=[], help="words of the names of the cases, by default all")
    parser.add_argument("--logs", default="", help="folder for the records")
    arguments = parser.parse_args()
    folder = arguments.logs or tempfile.mkdtemp(prefix="auto-scheduler-")
    os.environ["TVM_NUM_THREADS"] = str(arguments.threads)  # of the processes that run candidates
    set_num_threads(arguments.threads)
    print(f"{features().cpu}, {arguments.threads} threads, {arguments.trials} trials each; records in {folder}")
    ratios = []
    for number, case in enumerate(CASES):
        if arguments.cases and not any(word in case.name for word in arguments.cases):
            continue
        began = time.monotonic()
        log = str(Path(folder) / f"{number}.json")
        own, found = own_kernel(case), found_kernel(case, arguments.trials, arguments.threads, log)
        times = [(own(), found()) for _ in range(TURNS)]
        ours, theirs = (min(t) for t in zip(*times, strict=True))
        ratios.append(ours / theirs)
        took = time.monotonic() - began
        print(
            f"{case.name:40} own {ours * 1e6:9.1f} us  found {theirs * 1e6:9.1f} us  {ours / theirs:5.2f}  "
            f"({took:.0f} s)", flush=True,
        )  # fmt: skip
    if ratios:
        print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


if __name__ == "__main__":
    main()
