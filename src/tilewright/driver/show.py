"""``tilewright show``."""

from __future__ import annotations

from pathlib import Path

from tilewright.driver.options import parse_input_shapes
from tilewright.driver.report import print_table, print_text
from tilewright.ir.transform import PassContext
from tilewright.pictures.relay_graph import draw_module
from tilewright.relay import build_module
from tilewright.relay.frontend import import_model
from tilewright.relay.op.contrib.register import load_compiler
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.partition.explain_partition import explain_partition
from tilewright.relay.transform.partition.partition_for import partition_for
from tilewright.runtime.registry import get_global_func


def show_model(
    model: Path, input_shape: list[str] | None, opt_level: int | None, target: str, svg: Path | None = None
) -> None:
    """Print the model's Relay text, imported or optimized, or draw it to ``svg``."""
    mod, params = import_model(model, parse_input_shapes(input_shape))
    if opt_level is not None:
        with PassContext(opt_level=opt_level):
            mod, _ = build_module.optimize(mod, target, params, fuse=False)
    mod = InferType()(mod)
    if svg is None:
        print_text(mod.astext(show_meta_data=False))
        return
    mod["main"] = build_module.with_params(mod["main"], {} if opt_level is not None else params)
    draw_module(InferType()(mod)).write(svg)


def show_partition(model: Path, input_shape: list[str] | None, compiler: str, svg: Path | None = None) -> None:
    """Print which operators an external compiler takes, and why it refuses the others; draw its regions to ``svg``.

    A compiler with a ``partition_for_NAME`` of its own also has ``relay.ext.NAME.explain``.
    """
    mod, params = import_model(model, parse_input_shapes(input_shape))
    mod["main"] = build_module.with_params(mod["main"], params)
    load_compiler(compiler)
    if svg is not None:
        draw_module(InferType()(partition_for(compiler, mod, {}))).write(svg)
    explain = get_global_func(f"relay.ext.{compiler}.explain", allow_missing=True)
    fates = explain_partition(mod, compiler) if explain is None else explain(mod)
    print_table(
        ("operator", "result", "goes to", "why"),
        [(fate.operator, fate.type, fate.region or "host", fate.reason) for fate in fates],
    )
    taken = [fate.region for fate in fates if fate.region]
    print_text(f"{compiler} takes {len(taken)} of {len(fates)} operators, in {len(set(taken))} regions")
