"""The engines under comparison: each loads one model and runs it again and again on fixed inputs.

Every engine gets its own best way of repeated inference: inputs and outputs bound once where it can (ONNX
Runtime's IO binding, OpenVINO's shared tensors, Tilewright's `set_input`), fp32 arithmetic throughout, and
exactly the threads asked for. Engines are imported when loaded, so one worker process holds one engine.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]

TORCH = "torch"
PRECISION = "TILEWRIGHT_BENCHMARK_PRECISION"  # of Tilewright's weights; unless float32, OpenVINO takes its own default
FLOAT32 = "float32"
ONEDNN = "dnnl"


class Engine(ABC):
    """One way to run an ONNX model."""

    @classmethod
    def prepare(cls, model: Path, inputs: Arrays, folder: Path) -> Path:
        """What `load` takes for `model`: an engine that compiles ahead of time writes its library into
        `folder`.
        """
        return model

    @abstractmethod
    def load(self, prepared: Path, inputs: Arrays, threads: int) -> None:
        """Make ready to run on `threads` threads with `inputs` set."""

    @abstractmethod
    def run(self) -> None:
        """One inference."""

    @abstractmethod
    def outputs(self) -> dict[str, np.ndarray]:
        """The results of the last run by the model's output names."""

    @abstractmethod
    def version(self) -> str:
        """The engine's version, once loaded."""


class OnnxRuntime(Engine):
    """ONNX Runtime's CPU provider with all graph optimizations."""

    def load(self, prepared: Path, inputs: Arrays, threads: int) -> None:
        """Create the session; bind the inputs and, where their shapes are known, preallocated outputs."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self._session = onnxruntime.InferenceSession(str(prepared), options, providers=["CPUExecutionProvider"])
        self._binding = self._session.io_binding()
        self._inputs = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in inputs.items()}
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        for output in self._session.get_outputs():
            self._binding.bind_output(output.name, "cpu")
        self._version = str(onnxruntime.__version__)

    def run(self) -> None:
        """One inference."""
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> dict[str, np.ndarray]:
        """The results of the last run."""
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._binding.copy_outputs_to_cpu(), strict=True))

    def version(self) -> str:
        """ONNX Runtime's version."""
        return self._version


class OpenVino(Engine):
    """OpenVINO's CPU plugin, one stream; fp32 arithmetic, or its default beside our lower precisions."""

    def load(self, prepared: Path, inputs: Arrays, threads: int) -> None:
        """Compile the model and set the inputs of one inference request."""
        import openvino

        config = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
        }
        if os.environ.get(PRECISION, FLOAT32) == FLOAT32:
            config["INFERENCE_PRECISION_HINT"] = "f32"
        core = openvino.Core()
        model = core.read_model(str(prepared))
        self._names = [str(output.get_any_name()) for output in model.outputs]  # a compiled model's have more names
        self._compiled = core.compile_model(model, "CPU", config)
        self._request = self._compiled.create_infer_request()
        self._inputs = {name: openvino.Tensor(value) for name, value in inputs.items()}
        for name, tensor in self._inputs.items():
            self._request.set_tensor(name, tensor)
        self._version = str(openvino.__version__)

    def run(self) -> None:
        """One inference."""
        self._request.infer(share_inputs=True, share_outputs=True)

    def outputs(self) -> dict[str, np.ndarray]:
        """The results of the last run."""
        values = [self._request.get_output_tensor(index).data.copy() for index in range(len(self._names))]
        return dict(zip(self._names, values, strict=True))

    def version(self) -> str:
        """OpenVINO's version."""
        return self._version


class TorchCompile(Engine):
    """PyTorch's `torch.compile`: inductor's C++ kernels, weights frozen into them.

    It runs the network's PyTorch module, not its ONNX file: what it loads names the network of the zoo or of
    `structures`, as `describe_network` wrote it. It needs a C++ compiler; kernels that one process made are found by
    the next.
    """

    def load(self, prepared: Path, inputs: Arrays, threads: int) -> None:
        """Build the module, compile it, and run it once, which makes its kernels."""
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(prepared.with_name("inductor")))
        import torch
        from torch._inductor import config

        torch.set_num_threads(threads)
        config.freezing = True
        described = json.loads(prepared.read_text())
        network, order, self._names = _module(described["network"], described["options"])
        self._inputs = [torch.from_numpy(inputs[name]) for name in order]
        self._compiled = torch.compile(network)
        self._no_gradients = torch.no_grad
        self._version = str(torch.__version__)
        self.run()

    def run(self) -> None:
        """One inference."""
        with self._no_gradients():
            self._results = self._compiled(*self._inputs)

    def outputs(self) -> dict[str, np.ndarray]:
        """The results of the last run."""
        results = self._results if isinstance(self._results, tuple) else (self._results,)
        return {name: value.numpy() for name, value in zip(self._names, results, strict=True)}

    def version(self) -> str:
        """PyTorch's version."""
        return self._version


def _module(name: str, options: Mapping[str, Any]) -> tuple[Any, Sequence[str], Sequence[str]]:
    """A network of the zoo or of `structures`: the module, and the names of its inputs and of its results."""
    from tilewright.testing import zoo

    from . import structures

    if name in zoo.names():
        workload = zoo.build(name, **options)
        return workload.network.eval(), list(workload.inputs), workload.output_names
    structure = structures.made(name)
    return structure.module, structure.input_names, structures.OUTPUT_NAMES


def describe_network(path: Path, network: str, options: Mapping[str, Any]) -> None:
    """Write the file that `TorchCompile` loads: a network of the zoo and the sizes it is built with, or a structure."""
    path.write_text(json.dumps({"network": network, "options": dict(options)}))


class Tilewright(Engine):
    """Tilewright: an exported shared library in the graph executor."""

    lowers = True  # to the precision that is asked for

    @classmethod
    def arrange(cls, module: Any, params: Any) -> tuple[Any, Any]:
        """What is done to the imported network before it is built."""
        return module, params

    @classmethod
    def prepare(cls, model: Path, inputs: Arrays, folder: Path) -> Path:
        """Compile `model` for this CPU, untuned, and export the library."""
        import onnx

        import tilewright as tvm
        from tilewright import relay
        from tilewright.relay.transform.precision.halve_weights import precision_config

        shapes = {name: value.shape for name, value in inputs.items()}
        graph = onnx.load(str(model))
        (folder / "outputs.txt").write_text("\n".join(value.name for value in graph.graph.output))
        module, params = relay.frontend.from_onnx(graph, shapes)
        del graph  # the compiler's memory is measured, without the file's
        module, params = cls.arrange(module, params)
        config = precision_config(os.environ.get(PRECISION, FLOAT32) if cls.lowers else FLOAT32)
        with tvm.transform.PassContext(opt_level=3, config=config):
            factory = relay.build(module, target="llvm", params=params)
        library = folder / "model.so"
        factory.export_library(str(library))
        return library

    def load(self, prepared: Path, inputs: Arrays, threads: int) -> None:
        """Load the library and set the inputs."""
        os.environ["TVM_NUM_THREADS"] = str(threads)
        import tilewright as tvm
        from tilewright.contrib import graph_executor

        self._names = prepared.with_name("outputs.txt").read_text().split("\n")
        library = tvm.runtime.load_module(str(prepared))
        self._module = graph_executor.GraphModule(library["default"](tvm.cpu(0)))
        for name, value in inputs.items():
            self._module.set_input(name, value)
        self._run = self._module.module["run"]
        self._version = str(tvm.__version__)

    def run(self) -> None:
        """One inference."""
        self._run()

    def outputs(self) -> dict[str, np.ndarray]:
        """The results of the last run."""
        return {name: self._module.get_output(index).numpy() for index, name in enumerate(self._names)}

    def version(self) -> str:
        """Tilewright's version."""
        return self._version


class Loaded(Tilewright):
    """Tilewright by ``tilewright.load``, as a program uses it: models of one file share what they have in common."""

    def load(self, prepared: Path, inputs: Arrays, threads: int) -> None:
        """Open the library."""
        from tilewright.runtime.model import load

        self._model, self._inputs = load(prepared, threads=threads), inputs

    def run(self) -> None:
        """One inference, with results of its own."""
        self._results = self._model.run(self._inputs)

    def outputs(self) -> dict[str, np.ndarray]:
        """The results of the last run."""
        return dict(self._results)


class OneDnn(Tilewright):
    """Tilewright with what oneDNN takes run by oneDNN, PyPI's `onednn` in the same threads."""

    @classmethod
    def arrange(cls, module: Any, params: Any) -> tuple[Any, Any]:
        """Partition the network."""
        from tilewright.relay.op.contrib.dnnl import partition_for_dnnl

        return partition_for_dnnl(module, params), None

    @classmethod
    def prepare(cls, model: Path, inputs: Arrays, folder: Path) -> Path:
        """As above, in a folder of its own beside Tilewright's library."""
        own = folder / "dnnl"
        own.mkdir(exist_ok=True)
        return super().prepare(model, inputs, own)


class Float32(Tilewright):
    """Tilewright in float32: on the file that a quantized one was made of, or on the same one."""

    lowers = False

    @classmethod
    def prepare(cls, model: Path, inputs: Arrays, folder: Path) -> Path:
        """As above, in a folder of its own beside the quantized network's library."""
        from .quantized import float32_of

        own = folder / FLOAT32
        own.mkdir(exist_ok=True)
        return super().prepare(model if PRECISION in os.environ else float32_of(model), inputs, own)


ENGINES: Mapping[str, type[Engine]] = {
    "tilewright": Tilewright,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    ONEDNN: OneDnn,
    FLOAT32: Float32,
    TORCH: TorchCompile,
}
