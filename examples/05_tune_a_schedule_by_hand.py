"""Lesson 5: the same matrix product, five schedules.

Each step adds one idea, and the time says what it is worth: blocking for the cache, vectorizing, keeping the
results in registers, and running on all cores.
"""

import numpy as np

import tilewright as tvm
from tilewright import te

SIZE = 256

A = te.placeholder((SIZE, SIZE), name="A")
B = te.placeholder((SIZE, SIZE), name="B")
k = te.reduce_axis((0, SIZE), name="k")
C = te.compute((SIZE, SIZE), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")

rng = np.random.default_rng(0)
a, b = (rng.random((SIZE, SIZE)).astype("float32") for _ in range(2))


def measure(name: str, s: te.Schedule) -> None:
    """Build, check against numpy, and time a schedule."""
    kernel = tvm.build(s, [A, B, C], "llvm", name="matmul")
    args = tvm.nd.array(a), tvm.nd.array(b), tvm.nd.empty((SIZE, SIZE))
    kernel(*args)
    np.testing.assert_allclose(args[2].numpy(), a @ b, rtol=1e-4)
    seconds = kernel.time_evaluator(kernel.entry_name, tvm.cpu(), number=3)(*args).mean
    print(f"{name:28} {seconds * 1e3:8.3f} ms  {2 * SIZE**3 / seconds / 1e9:7.2f} GFLOP/s")


s = te.create_schedule(C.op)
measure("as written", s)

s = te.create_schedule(C.op)
i, j = C.op.axis
io, jo, ii, ji = s[C].tile(i, j, 32, 32)
ko, ki = s[C].split(k, factor=4)
s[C].reorder(io, jo, ko, ki, ii, ji)
measure("blocked", s)

s[C].vectorize(ji)
measure("blocked, vectorized", s)

s = te.create_schedule(C.op)
tile = s.cache_write(C, "local")
io, jo, ii, ji = s[C].tile(*s[C].op.axis, 8, 32)
s[C].vectorize(ji)
s[tile].compute_at(s[C], jo)
ti, tj = s[tile].op.axis
(tk,) = s[tile].op.reduce_axis
s[tile].reorder(tk, ti, tj)
s[tile].unroll(ti)
s[tile].vectorize(tj)
measure("results in registers", s)

s[C].parallel(io)
measure("on all cores", s)
