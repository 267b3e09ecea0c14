"""Lesson 8: let the auto-scheduler find a schedule.

Lesson 5 wrote five schedules of a matrix product by hand. Here nothing is written but what is computed: sketches are
derived from it, programs drawn from them, a few measured, and the best kept as a record, which a later build takes.
"""

import tempfile
from pathlib import Path

import numpy as np

import tilewright as tvm
from tilewright import auto_scheduler, te

SIZE = 128
TRIALS = 8  # a real search has hundreds


@auto_scheduler.register_workload
def product_and_relu(size: int) -> list[te.Tensor]:
    """relu(A @ B), in plain loops."""
    a, b = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return [a, b, te.compute((size, size), lambda i, j: te.max(c[i, j], 0.0), name="relu")]


task = auto_scheduler.SearchTask(func=product_and_relu, args=(SIZE,), target="llvm")
print(task.compute_dag)

policy = auto_scheduler.SketchPolicy(task, seed=0, verbose=0, params={"evolutionary_search_population": 32})
print(f"{len(policy.sketches())} sketches, such as:\n{policy.sketches()[0]}")

records = str(Path(tempfile.mkdtemp()) / "records.json")
runner = auto_scheduler.LocalRunner(number=1, repeat=3, min_repeat_ms=1, timeout=30)
task.tune(
    auto_scheduler.TuningOptions(
        TRIALS, num_measures_per_round=4, verbose=0, runner=runner, builder=auto_scheduler.LocalBuilder(timeout=60),
        measure_callbacks=[auto_scheduler.RecordToFile(records)],
    ),
    policy,
)  # fmt: skip
for _, result in auto_scheduler.load_records(records):
    print("failed" if result.error_no else f"{min(float(c) for c in result.costs) * 1e6:9.1f} us")

schedule, arguments = task.apply_best(records)
kernel = tvm.build(schedule, arguments, "llvm")
rng = np.random.default_rng(0)
x, y = (rng.random((SIZE, SIZE), np.float32) for _ in range(2))
out = tvm.nd.empty((SIZE, SIZE))
kernel(tvm.nd.array(x), tvm.nd.array(y), out)
np.testing.assert_allclose(out.numpy(), np.maximum(x @ y, 0), rtol=1e-4)
print("the best program, as a schedule in Python:")
print(task.print_best(records))
print(f"it gives relu(x @ y) of {SIZE} x {SIZE} matrices, as numpy does")
