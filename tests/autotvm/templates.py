"""Templates that tests tune."""

import os
import signal
import time

from tilewright import autotvm, te


@autotvm.template("tests/matmul")
def matmul(n: int, trouble: str) -> tuple[te.Schedule, list[te.Tensor]]:
    """A matrix product with 98 configurations; ``trouble`` says what those with ``unroll`` do."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    cfg = autotvm.get_config()
    cfg.define_knob("unroll", [0, 1])
    extra = 1 if trouble == "wrong" and cfg["unroll"].val else 0
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j] + te.const(extra, "float32"), axis=k), name="C")
    s = te.create_schedule(c.op)
    y, x = s[c].op.axis
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    yo, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    s[c].reorder(yo, xo, k, yi, xi)
    if cfg["unroll"].val:
        misbehave(trouble, cfg)
        s[c].unroll(yi)
    return s, [a, b, c]


def misbehave(trouble: str, cfg: autotvm.ConfigSpace) -> None:
    """Fail, where the space is not just being collected."""
    if not isinstance(cfg, autotvm.ConfigEntity):
        return
    if trouble == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif trouble == "hang":
        time.sleep(60)
    elif trouble == "refuse":
        cfg.raise_error("unrolling is refused")
    elif trouble == "raise":
        raise ZeroDivisionError("no such luck")


def sample_task(n: int = 64, trouble: str = "") -> autotvm.Task:
    """A task of 2 * 7 * 7 configurations."""
    return autotvm.create("tests/matmul", (n, trouble), "llvm")
