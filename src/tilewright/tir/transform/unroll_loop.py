"""UnrollLoop: unroll loops marked "unroll", and short inner loops if the options say so.

Before and after::

    for (i: int32, 0, 3) "unroll" {        A[0] = 0f32
      A[i] = cast(float32, i)              A[1] = 1f32
    }                                      A[2] = 2f32

``tir.UnrollLoop`` in the PassContext's config is a dictionary: ``auto_max_step`` (serial innermost loops with at most
so many stores in all are unrolled; 0 for none), ``auto_max_depth``, ``auto_max_extent``, ``explicit_unroll`` (False
leaves marked loops to the code generator). Pragmas ``auto_unroll_max_step`` and ``unroll_explicit`` set the same for
one loop nest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.transform import Pass, PassContext
from tilewright.tir.stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, Stmt, Store, seq
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtMutator, substitute, with_fresh_vars


@dataclass(frozen=True)
class UnrollConfig:
    """Options of the pass."""

    auto_max_step: int = 0
    auto_max_depth: int = 8
    auto_max_extent: int = 0
    explicit_unroll: bool = True

    @staticmethod
    def of(options: Mapping[str, Any]) -> UnrollConfig:
        """Read the PassContext's dictionary; raises TypeError on an unknown key."""
        return UnrollConfig(**{k: v for k, v in options.items() if k != "unroll_local_access"})


class _Unroll(StmtMutator):
    """Counts stores and the depth of loops on the way up, which decides about loops not marked."""

    def __init__(self, config: UnrollConfig) -> None:
        super().__init__()
        self.config = config
        self.steps = 0
        self.normal_depth = 0
        self.unrolled_depth = 0

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key not in ("pragma_auto_unroll_max_step", "pragma_unroll_explicit"):
            return super().visit_attr(s)
        value = int(s.value) if isinstance(s.value, IntImm) else 0
        outer = self.config
        if s.attr_key == "pragma_auto_unroll_max_step":
            self.config = replace(outer, auto_max_step=value)
        else:
            self.config = replace(outer, explicit_unroll=bool(value))
        body: Stmt = self.visit_stmt(s.body)
        self.config = outer
        return body

    def visit_for(self, s: For) -> Stmt:
        outer = self.steps, self.normal_depth, self.unrolled_depth
        self.steps = self.normal_depth = self.unrolled_depth = 0
        new = super().visit_for(s)
        assert isinstance(new, For)
        extent = new.extent.value if isinstance(new.extent, IntImm) else -1
        auto = (
            new.kind == ForKind.SERIAL
            and extent >= 0
            and self.normal_depth == 0
            and self.unrolled_depth <= self.config.auto_max_depth
            and (self.steps * extent <= self.config.auto_max_step or 0 < extent <= self.config.auto_max_extent)
        )
        marked = new.kind == ForKind.UNROLLED and extent >= 0
        result: Stmt = new
        once = 0 <= extent <= self.config.auto_max_extent == 1  # however many steps are inside
        if once or (marked and self.config.explicit_unroll) or (auto and self.config.explicit_unroll):
            result = unroll(new, extent)
            self.steps *= extent
            self.unrolled_depth += 1
        else:
            if auto:
                result = For(new.loop_var, new.min, new.extent, ForKind.UNROLLED, new.body, None, new.annotations)
            if marked or auto:
                self.unrolled_depth += 1
            else:
                self.normal_depth += 1
            if extent > 0:
                self.steps *= extent
        self.steps += outer[0]
        self.normal_depth = max(self.normal_depth, outer[1])
        self.unrolled_depth = max(self.unrolled_depth, outer[2])
        return result

    def visit_store(self, s: Store) -> Stmt:
        self.steps += 1
        return s

    def visit_buffer_store(self, s: BufferStore) -> Stmt:
        self.steps += 1
        return s

    def visit_evaluate(self, s: Evaluate) -> Stmt:
        self.steps += 1
        return s


def unroll(loop: For, extent: int) -> Stmt:
    """The iterations of ``loop`` one after another."""
    body = loop.body
    copies = [substitute(body, {loop.loop_var: ops.add(loop.min, i)}) for i in range(extent)]
    return seq(*[c if i == 0 or c is body else with_fresh_vars(c) for i, c in enumerate(copies)])


def unroll_loop(stmt: Stmt, config: UnrollConfig | None = None) -> Stmt:
    """Unroll loops of ``stmt`` by the configuration."""
    return _Unroll(config or UnrollConfig()).visit_stmt(stmt)


def UnrollLoop() -> Pass:
    """The pass; the configuration is that of the PassContext when it runs."""
    return body_pass(
        "UnrollLoop", lambda s: unroll_loop(s, UnrollConfig.of(PassContext.current().option("tir.UnrollLoop")))
    )
