"""``tilewright show``."""

from __future__ import annotations

from pathlib import Path

from tilewright.driver.options import parse_input_shapes
from tilewright.ir.transform import PassContext
from tilewright.relay import build_module
from tilewright.relay.frontend.onnx.importer import from_onnx
from tilewright.relay.transform.infer_type import InferType


def show_model(model: Path, input_shape: list[str] | None, opt_level: int | None, target: str) -> None:
    """Print the model's Relay text, imported or optimized."""
    mod, params = from_onnx(model, parse_input_shapes(input_shape))
    if opt_level is None:
        print(InferType()(mod).astext(show_meta_data=False))
        return
    with PassContext(opt_level=opt_level):
        mod, _ = build_module.optimize(mod, target, params, fuse=False)
    print(mod.astext(show_meta_data=False))
