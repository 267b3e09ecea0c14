"""Programs as TVM's courses teach them, in our own text, run as they stand by ``python -m tilewright.tvm``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAD = "import numpy as np\nimport tvm\nfrom tvm import te, tir, topi, relay\n"

PROGRAMS = {
    "a reduction in two steps": """
n, m = te.var("n"), te.var("m")
a = te.placeholder((n, m), name="a")
k = te.reduce_axis((0, m), "k")
b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="b")
s = te.create_schedule(b.op)
outer, inner = s[b].split(b.op.reduce_axis[0], factor=16)
part = s.rfactor(b, outer)
if tvm.cuda().exist:
    s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
else:
    s[part].parallel(part.op.axis[0])
target = "cuda" if tvm.cuda().exist else "llvm"
f = tvm.build(s, [a, b], target)
dev = tvm.device(target, 0)
x = np.random.uniform(size=(7, 101)).astype("float32")
y = tvm.nd.array(np.zeros(7, "float32"), dev)
f(tvm.nd.array(x, dev), y)
tvm.testing.assert_allclose(y.numpy(), x.sum(axis=1), rtol=1e-4)
""",
    "a reducer of one's own, of two values": """
def better(l, r):
    here = l[1] >= r[1]
    return te.if_then_else(here, l[0], r[0]), te.if_then_else(here, l[1], r[1])

def worst(index_dtype, value_dtype):
    return tir.const(-1, index_dtype), te.min_value(value_dtype)

greatest = te.comm_reducer(better, worst, name="greatest")
index = te.placeholder((5, 9), "int32", "index")
value = te.placeholder((5, 9), "float32", "value")
k = te.reduce_axis((0, 9), "k")
first, second = te.compute((5,), lambda i: greatest((index[i, k], value[i, k]), axis=k), name="t")
f = tvm.build(te.create_schedule(first.op), [index, value, first, second], "llvm")
places = np.tile(np.arange(9, dtype="int32"), (5, 1))
x = np.random.permutation(45).reshape(5, 9).astype("float32")
found = [tvm.nd.array(np.zeros(5, d)) for d in ("int32", "float32")]
f(tvm.nd.array(places), tvm.nd.array(x), *found)
assert (found[0].numpy() == x.argmax(1)).all() and (found[1].numpy() == x.max(1)).all()
""",
    "a scan": """
x = te.placeholder((6, 4), name="x")
state = te.placeholder((6, 4))
start = te.compute((1, 4), lambda _, i: x[0, i])
step = te.compute((6, 4), lambda t, i: state[t - 1, i] + x[t, i])
sums = tvm.te.scan(start, step, state, inputs=[x])
f = tvm.build(te.create_schedule(sums.op), [x, sums], "llvm")
data = np.random.normal(size=(6, 4)).astype("float32")
out = tvm.nd.array(np.zeros((6, 4), "float32"))
f(tvm.nd.array(data), out)
tvm.testing.assert_allclose(out.numpy(), np.cumsum(data, axis=0), rtol=1e-5)
""",
    "an intrinsic of one's own": """
tvm.ir.register_op_attr("tir.twice_and_one", "TCallEffectKind", tir.CallEffectKind.Pure)
tvm.ir.register_intrin_lowering("tir.twice_and_one", target="llvm", f=lambda op: op.args[0] * 2.0 + 1.0, level=99)
a = te.placeholder((8,), "float", "a")
b = te.compute((8,), lambda i: tir.call_intrin("float32", "tir.twice_and_one", a[i]), name="b")
f = tvm.build(te.create_schedule(b.op), [a, b], "llvm")
out = tvm.nd.array(np.zeros(8, "float32"))
f(tvm.nd.array(np.arange(8, dtype="float32")), out)
assert out.numpy().tolist() == [2 * i + 1 for i in range(8)]
""",
    "a pass of one's own between others": """
@relay.transform.function_pass(opt_level=1)
class Replace:
    def transform_function(self, func, mod, ctx):
        class Doubled(relay.ExprMutator):
            def visit_constant(self, c):
                return relay.multiply(relay.const(2.0), c)
        return Doubled().visit(func)

x = relay.var("x", shape=(3,))
mod = tvm.IRModule.from_expr(relay.Function([x], relay.add(x, relay.const(4.0))))
with tvm.transform.PassContext(opt_level=3):
    mod = tvm.transform.Sequential([Replace(), relay.transform.FoldConstant()])(relay.transform.InferType()(mod))
assert mod["main"].body.args[1].data.numpy() == 8
lib = relay.build(mod, "llvm")
m = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
m.run(x=np.ones(3, "float32"))
assert m.get_output(0).numpy().tolist() == [9, 9, 9]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_runs(name: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HEAD + PROGRAMS[name] + 'print("done")\n')
    command = [sys.executable, "-m", "tilewright.tvm", "program.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.stdout.endswith("done\n"), run.stderr
