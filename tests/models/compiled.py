"""Compiling and running ONNX models in tests, and how far outputs are from expected ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import ModelProto

from tilewright.testing.zoo import largest_relative_difference

if TYPE_CHECKING:
    from tilewright.runtime.executor.graph import GraphModule


def compile_model(
    model: ModelProto,
    inputs: Mapping[str, np.ndarray],
    target: str = "llvm",
    opt_level: int = 3,
    library: Path | None = None,
) -> GraphModule:
    """`model` compiled for the shapes of `inputs`, with them set; through the file `library` if one is named.

    It runs on the first device of its target: for `opencl`, the first OpenCL device.
    """
    import tilewright as tvm
    from tilewright import relay
    from tilewright.contrib import graph_executor

    shapes = {name: value.shape for name, value in inputs.items()}
    module, params = relay.frontend.from_onnx(model, shapes)
    with tvm.transform.PassContext(opt_level=opt_level):
        factory = relay.build(module, target=target, params=params)
    device = tvm.device(tvm.target.Target(target).kind.device_name, 0)
    if library is None:
        executor = factory["default"](device)
    else:
        factory.export_library(str(library))
        executor = tvm.runtime.load_module(str(library))["default"](device)
    compiled = graph_executor.GraphModule(executor)
    for name, value in inputs.items():
        compiled.set_input(name, value)
    return compiled


def run(compiled: GraphModule, threads: int = 1) -> list[np.ndarray]:
    """All outputs of one run on `threads` threads."""
    from tilewright.runtime.module import set_num_threads

    set_num_threads(threads)
    try:
        compiled.run()
    finally:
        set_num_threads(0)
    return [compiled.get_output(index).numpy() for index in range(compiled.get_num_outputs())]


def assert_close(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float = 1e-4) -> None:
    """Every output has the expected shape and dtype, and differs by at most `tolerance` of its largest value."""
    assert len(found) == len(expected)
    for index, (value, wanted) in enumerate(zip(found, expected, strict=True)):
        assert value.shape == wanted.shape, f"output {index}: shape {value.shape}, expected {wanted.shape}"
        assert value.dtype == wanted.dtype, f"output {index}: dtype {value.dtype}, expected {wanted.dtype}"
        difference = largest_relative_difference(value, wanted)
        assert difference <= tolerance, f"output {index}: relative difference {difference:.2g}, at most {tolerance:.2g}"
