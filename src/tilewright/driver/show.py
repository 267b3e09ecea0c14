"""``tilewright show``."""

from __future__ import annotations

from pathlib import Path

from tilewright.driver.options import parse_input_shapes
from tilewright.driver.report import print_table, print_text
from tilewright.ir.transform import PassContext
from tilewright.relay import build_module
from tilewright.relay.frontend import import_model
from tilewright.relay.op.contrib.register import load_compiler
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.partition.explain_partition import explain_partition
from tilewright.runtime.registry import get_global_func


def show_model(model: Path, input_shape: list[str] | None, opt_level: int | None, target: str) -> None:
    """Print the model's Relay text, imported or optimized."""
    mod, params = import_model(model, parse_input_shapes(input_shape))
    if opt_level is None:
        print_text(InferType()(mod).astext(show_meta_data=False))
        return
    with PassContext(opt_level=opt_level):
        mod, _ = build_module.optimize(mod, target, params, fuse=False)
    print_text(mod.astext(show_meta_data=False))


def show_partition(model: Path, input_shape: list[str] | None, compiler: str) -> None:
    """Print which operators an external compiler takes, and why it does not take the others.

    A compiler with a ``partition_for_NAME`` of its own also has ``relay.ext.NAME.explain``.
    """
    mod, params = import_model(model, parse_input_shapes(input_shape))
    mod["main"] = build_module.with_params(mod["main"], params)
    load_compiler(compiler)
    explain = get_global_func(f"relay.ext.{compiler}.explain", allow_missing=True)
    fates = explain_partition(mod, compiler) if explain is None else explain(mod)
    print_table(
        ("operator", "result", "goes to", "why"),
        [(fate.operator, fate.type, fate.region or "host", fate.reason) for fate in fates],
    )
    taken = [fate.region for fate in fates if fate.region]
    print_text(f"{compiler} takes {len(taken)} of {len(fates)} operators, in {len(set(taken))} regions")
