"""Lesson 4: one kernel, from its definition to machine code.

A tensor expression says *what* is computed; the schedule says *how*: here in chunks of 64, the chunks in
parallel, each chunk vectorized. The shape `n` is not known until the kernel runs.
"""

import numpy as np

import tilewright as tvm
from tilewright import te

n = te.var("n")
A = te.placeholder((n,), name="A")
B = te.placeholder((n,), name="B")
C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")

s = te.create_schedule(C.op)
xo, xi = s[C].split(C.op.axis[0], factor=64)
s[C].parallel(xo)
s[C].vectorize(xi)
print(tvm.lower(s, [A, B, C], simple_mode=True))

fadd = tvm.build(s, [A, B, C], "llvm", name="add")
for size in (1, 63, 64, 1000):
    a, b = (tvm.nd.array(np.random.default_rng(i).random(size).astype("float32")) for i in range(2))
    c = tvm.nd.empty((size,))
    fadd(a, b, c)
    np.testing.assert_array_equal(c.numpy(), a.numpy() + b.numpy())
print("right for every size")
