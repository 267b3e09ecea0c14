"""Whole networks on an NVIDIA GPU beside PyTorch: what ``python -m benchmarks.gpu --networks`` prints second.

Both are given weights and inputs of float32 or float16, and run as one recorded CUDA graph: launches cost neither of
them anything, and kernels are compared. Needs PyTorch with CUDA, and torchvision.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tilewright as tvm
from benchmarks.gpu import torch_time
from tilewright import relay
from tilewright.contrib.cuda_graph import cuda_graph_executor


def networks() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield a name, a module of PyTorch in evaluation mode, and its inputs."""
    import torch
    import torchvision

    torch.manual_seed(0)
    for batch in (1, 16):
        picture = torch.rand(batch, 3, 224, 224)
        yield f"ResNet-50, {batch}", torchvision.models.resnet50().eval(), (picture,)
        yield f"MobileNetV2, {batch}", torchvision.models.mobilenet_v2().eval(), (picture,)
    yield "ViT-B/16, 1", torchvision.models.vit_b_16().eval(), (torch.rand(1, 3, 224, 224),)
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).eval()
    yield "encoder of BERT-base, 1x128", encoder, (torch.randn(1, 128, 768),)
    yield "encoder of BERT-base, 8x384", encoder, (torch.randn(8, 384, 768),)


def ours(module: Any, inputs: tuple[Any, ...], target: str) -> tuple[float, float, np.ndarray]:
    """Return the seconds of a build, the median seconds of a run by the device's clock, and the first result."""
    device = tvm.cuda(0)
    started = time.perf_counter()
    mod, params = relay.frontend.from_exported_program(module, inputs)
    lib = relay.build(mod, target, params=params)
    built = time.perf_counter() - started
    executor = cuda_graph_executor.create(lib.get_graph_json(), lib.get_lib(), device)
    for name, value in lib.get_params().items():
        executor.set_input(name, value)
    for index, value in enumerate(inputs):
        executor.set_input(index, tvm.nd.array(value.numpy(), device))
    for _ in range(3):
        executor.run()
    seconds = executor.module.time_evaluator("run_cuda_graph", device, number=10, repeat=5)().median
    return built, seconds, executor.get_output(0).numpy()


def theirs(module: Any, inputs: tuple[Any, ...]) -> tuple[float, np.ndarray]:
    """Return the median seconds of PyTorch's kernels, and the result."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    module, values = module.cuda(), [v.cuda() for v in inputs]
    with torch.no_grad():
        for _ in range(3):
            module(*values)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = module(*values)
        replay: Callable[[], Any] = graph.replay
        return torch_time(torch, replay, number=10), result.double().cpu().numpy()


def table() -> None:
    """Print milliseconds of each network by both, and how far the results differ."""
    import torch

    version = str(tvm.cuda(0).compute_version).replace(".", "")
    print("\n| network | dtype | ms | PyTorch ms | error | build s |\n|---|---|---:|---:|---:|---:|")
    for name, module, inputs in networks():
        for dtype in (torch.float32, torch.float16):
            given = tuple(v.to(dtype) for v in inputs)
            kind = str(dtype).removeprefix("torch.")
            try:
                built, seconds, result = ours(module.to("cpu", dtype), given, f"cuda -arch=sm_{version}")
            except Exception as error:
                print(f"| {name} | {kind} | failed: {str(error).strip().splitlines()[-1][:300]} |", flush=True)
                continue
            other, expected = theirs(module, given)
            far = np.abs(result.astype("float64") - expected).max() / np.abs(expected).max()
            print(
                f"| {name} | {kind} | {seconds * 1e3:.3f} | {other * 1e3:.3f} | {far:.1e} | {built:.1f} |", flush=True
            )
