"""Records of passes: which lines changed."""

from __future__ import annotations

import tilewright as tvm
from tilewright import relay
from tilewright.ir.transform import PassContext, Sequential
from tilewright.report.passes import PassRecorder, changes


def test_lines_that_differ_in_the_numbers_of_values_are_no_changes() -> None:
    old = ["fn (%x) {", "  %0 = exp(%x);", "  %1 = nn.relu(%0);", "  tanh(%1)", "}"]
    new = ["fn (%x) {", "  %0 = exp(%x);", "  %1 = abs(%0);", "  %2 = nn.relu(%1);", "  tanh(%2)", "}"]
    hunks, added, removed = changes(old, new)
    assert (added, removed) == (1, 0)
    assert hunks == ((*(f" {line}" for line in new[:2]), f"+{new[2]}", *(f" {line}" for line in new[3:])),)


def test_equal_texts_have_no_hunks() -> None:
    assert changes(["a", "b"], ["a", "b"]) == ((), 0, 0)
    assert changes([], ["a"]) == ((("+a",),), 1, 0)


def _module() -> tvm.IRModule:
    x = relay.var("x", shape=(2, 3))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.batch_flatten(relay.add(x, x)) + relay.const(0.0)))


def test_a_recorder_has_each_pass_with_its_changes_and_its_depth() -> None:
    recorder = PassRecorder()
    with PassContext(opt_level=3, instruments=[recorder]):
        Sequential([relay.transform.InferType(), relay.transform.FuseOps(2)], name="both")(_module())
    both, infer, fuse = (
        next(r for r in recorder.records if r.name == name) for name in ("both", "InferType", "FuseOps")
    )
    assert (both.depth, both.hunks, infer.depth) == (0, (), 1)
    assert fuse.added > 0 and any("Primitive=1" in line for hunk in fuse.hunks for line in hunk if line[0] == "+")
    assert fuse.seconds > 0 and recorder.records.index(both) < recorder.records.index(fuse)


def test_passes_beyond_the_limit_are_unread() -> None:
    recorder = PassRecorder(limit=0.0)
    with PassContext(opt_level=3, instruments=[recorder]):
        relay.transform.FuseOps(2)(relay.transform.InferType()(_module()))
    (fuse,) = (record for record in recorder.records if record.name == "FuseOps")
    assert fuse.unread and not fuse.hunks
