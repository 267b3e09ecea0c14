"""Large models: what compiling takes, in seconds and in memory, beside copying the file and ONNX Runtime's session.

python -m benchmarks.large                                  # a step of a Llama-like network, 1.03 billion parameters
python -m benchmarks.large --weights int4 --layers 32 --width 4096 --inner 14336 --groups 8            # 7 billion
python -m benchmarks.large --weights bfloat16 --layers 40 --width 2560 --heads 20 --inner 9728 --vocabulary 151936
python -m benchmarks.large --scale 0.01                     # what the tests build

The model's weights are random: parts of a block of random numbers, one external file each, written at the disk's speed.
A step takes hidden states and a cache of ``--cache`` tokens. Each engine has a process of its own. Memory is that of
the process, looked at every 5 ms: anonymous memory is its own; mapped memory is pages of files, which the system takes
back when it needs them. The level before the build (Python, numpy, onnx, the compiler) is told apart. A step is told in
processor time of one thread, in turns with a loop that sums as many bytes as the library has.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_EXTERNAL = TensorProto.EXTERNAL
_BLOCK = 1 << 22  # random numbers that all weights are made of
_NBITS_BLOCK = 32
_LOOK_SECONDS = 0.005
KINDS = "anonymous", "mapped"


@dataclass(frozen=True)
class Sizes:
    """The sizes of a network: ``groups`` are its heads of keys and values, ``cache`` the tokens before the step."""

    layers: int = 22
    width: int = 2048
    heads: int = 32
    groups: int = 4
    inner: int = 5632
    vocabulary: int = 32000
    cache: int = 64

    def scaled(self, scale: float) -> Sizes:
        """Return sizes with about ``scale`` as many parameters."""
        head = self.width // self.heads
        heads = max(self.groups, round(self.heads * scale**0.4 / self.groups) * self.groups)
        inner, words = (max(64, round(n * heads / self.heads / 64) * 64) for n in (self.inner, self.vocabulary))
        layers = max(1, round(self.layers * scale**0.2))
        return Sizes(layers, heads * head, heads, self.groups, inner, words, self.cache)


@dataclass
class _Writer:
    """The nodes and weights of a model so far; weights are written to files in ``folder`` at once."""

    folder: Path
    sizes: Sizes
    weights: str
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.normals = self.rng.standard_normal(_BLOCK, "float32")
        self.bytes = self.rng.integers(0, 256, _BLOCK, "uint8")

    @property
    def dtype(self) -> int:
        """The type of the network's numbers."""
        return TensorProto.BFLOAT16 if self.weights == "bfloat16" else TensorProto.FLOAT

    def node(self, operator: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """Add a node with one output, ``name``."""
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def small(self, name: str, value: Any) -> str:
        """Add a tensor in the model's own file; floats in the network's type."""
        array = np.asarray(value)
        if array.dtype == np.float32 and self.weights == "bfloat16":
            self.tensors.append(helper.make_tensor(name, self.dtype, array.shape, _bfloat16(array).tobytes(), raw=True))
        else:
            self.tensors.append(numpy_helper.from_array(array, name))
        return name

    def external(self, name: str, block: np.ndarray[Any, Any], shape: Sequence[int], dtype: int) -> str:
        """Add a tensor of parts of ``block`` in a file of its own."""
        count = left = math.prod(shape)
        with (self.folder / name).open("wb") as file:
            while left:
                start = int(self.rng.integers(0, block.size // 2))
                part = block[start : start + left]
                part.tofile(file)
                left -= part.size
        tensor = TensorProto(name=name, data_type=dtype, dims=shape, data_location=_EXTERNAL)
        for key, text in (("location", name), ("offset", "0"), ("length", str(count * block.itemsize))):
            tensor.external_data.add(key=key, value=text)
        self.tensors.append(tensor)
        return name

    def product(self, data: str, rows: int, columns: int, name: str) -> str:
        """Add a product with a matrix of random weights, (rows, columns)."""
        if self.weights != "int4":
            normals = self.normals * np.float32(rows**-0.5)
            block = _bfloat16(normals) if self.weights == "bfloat16" else normals
            weight = self.external(f"{name}.weight", block, (rows, columns), self.dtype)
            return self.node("MatMul", [data, weight], name)
        shape = columns, rows // _NBITS_BLOCK, _NBITS_BLOCK // 2
        codes = self.external(f"{name}.codes", self.bytes, shape, TensorProto.UINT8)
        scales = np.abs(self.normals) * np.float32(0.2 * rows**-0.5) + np.float32(1e-3)
        inputs = [data, codes, self.external(f"{name}.scales", scales, (columns, rows // _NBITS_BLOCK), self.dtype)]
        return self.node("MatMulNBits", inputs, name, domain="com.microsoft", K=rows, N=columns, bits=4,
                         block_size=_NBITS_BLOCK, accuracy_level=4)  # fmt: skip


def _bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bits of the bfloat16 below each float32, uint16."""
    return (values.view("uint32") >> 16).astype("uint16")


def make_model(folder: Path, sizes: Sizes, weights: str = "float32") -> Path:
    """Write a step of a network to ``folder``; return the model's path.

    Its inputs are ``hidden``, (1, 1, width), and caches ``past.N.key`` and ``past.N.value``, (groups, cache, head).
    """
    w = _Writer(folder, sizes, weights)
    data = "hidden"
    for layer in range(sizes.layers):
        data = _layer(w, data, layer)
    w.product(_norm(w, data, "norm"), sizes.width, sizes.vocabulary, "logits")
    shape = sizes.groups, sizes.cache, sizes.width // sizes.heads
    caches = [f"past.{layer}.{part}" for layer in range(sizes.layers) for part in ("key", "value")]
    values = [helper.make_tensor_value_info(name, w.dtype, shape) for name in caches]
    hidden = helper.make_tensor_value_info("hidden", w.dtype, (1, 1, sizes.width))
    logits = helper.make_tensor_value_info("logits", w.dtype, (1, 1, sizes.vocabulary))
    graph = helper.make_graph(w.nodes, "step", [hidden, *values], [logits], w.tensors)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    return path


def _norm(w: _Writer, data: str, name: str) -> str:
    scale = w.small(f"{name}.weight", w.rng.uniform(0.8, 1.2, w.sizes.width).astype("float32"))
    return w.node("RMSNormalization", [data, scale], name, epsilon=1e-5)


def _layer(w: _Writer, data: str, layer: int) -> str:
    s, name = w.sizes, f"layers.{layer}"
    mixed = w.product(_attention(w, _norm(w, data, f"{name}.norm"), layer), s.width, s.width, f"{name}.o")
    data = w.node("Add", [data, mixed], f"{name}.middle")
    normed = _norm(w, data, f"{name}.mlp")
    gate = w.product(normed, s.width, s.inner, f"{name}.gate")
    gate = w.node("Mul", [gate, w.node("Sigmoid", [gate], f"{name}.sigmoid")], f"{name}.swish")
    wide = w.node("Mul", [gate, w.product(normed, s.width, s.inner, f"{name}.up")], f"{name}.wide")
    return w.node("Add", [data, w.product(wide, s.inner, s.width, f"{name}.down")], f"{name}.end")


def _attention(w: _Writer, data: str, layer: int) -> str:
    """Return what the step's token takes from the cache and itself, (1, 1, width)."""
    s, name, size = w.sizes, f"layers.{layer}", w.sizes.width // w.sizes.heads

    def shaped(value: str, *shape: int) -> str:
        return w.node("Reshape", [value, w.small(f"{value}.shape", np.array(shape, "int64"))], f"{value}.shaped")

    query = shaped(w.product(data, s.width, s.width, f"{name}.q"), s.groups, s.heads // s.groups, size)
    key, value = (
        w.node("Concat", [f"past.{layer}.{part}", shaped(new, s.groups, 1, size)], f"{new}.all", axis=1)
        for part in ("key", "value")
        for new in [w.product(data, s.width, s.groups * size, f"{name}.{part}")]
    )
    turned = w.node("Transpose", [key], f"{key}.turned", perm=[0, 2, 1])
    scores = w.node("MatMul", [query, turned], f"{name}.products")
    scores = w.node("Mul", [scores, w.small(f"{name}.scale", np.float32(size**-0.5))], f"{name}.scores")
    shares = w.node("Softmax", [scores], f"{name}.shares", axis=-1)
    return shaped(w.node("MatMul", [shares, value], f"{name}.mixed"), 1, 1, s.width)


def memory() -> dict[str, int]:
    """Return the bytes of this process's memory by kind."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("RssAnon", "RssFile"):
            found[KINDS[name == "RssFile"]] = int(rest.split()[0]) << 10
    return found


@dataclass
class Stage:
    """What a stage took: seconds, and the greatest memory meanwhile by kind, in bytes."""

    seconds: float = 0.0
    peak: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))


class Watch:
    """Looks at the memory of this process from a thread of its own; ``stages`` has what each took."""

    def __init__(self) -> None:
        self.stages: dict[str, Stage] = {}
        self.current = ""
        self._since = time.perf_counter()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self, stage: str) -> None:
        """End the stage before, and begin one."""
        now = time.perf_counter()
        self.look()
        if self.current:
            self.stages[self.current].seconds += now - self._since
        self.current, self._since = stage, now
        self.stages.setdefault(stage, Stage())
        self.look()

    def look(self) -> None:
        """Note the memory."""
        stage = self.stages.get(self.current)
        if stage is not None:
            stage.peak = {kind: max(most, stage.peak[kind]) for kind, most in memory().items()}

    def _run(self) -> None:
        while not self._end.wait(_LOOK_SECONDS):
            self.look()

    @contextmanager
    def running(self) -> Iterator[Watch]:
        """Watch while the block runs."""
        self._thread.start()
        try:
            yield self
        finally:
            self._end.set()
            self._thread.join()
            self.begin("")
            self.stages.pop("")


def compile_watched(model: Path, library: Path, executor: str = "auto") -> dict[str, Any]:
    """Compile in this process; return what each stage took, and the memory before."""
    from tilewright.driver.compile import CompileOptions, build_library
    from tilewright.relay.backend.progress import ProgressEvent, watch

    watched, before = Watch(), memory()

    def follow(event: ProgressEvent) -> None:
        if event.done < event.total and event.stage != watched.current:
            watched.begin(event.stage)

    with watched.running():
        watched.begin("start")
        with watch(follow):
            build_library(CompileOptions(model, library, executor=executor), quiet=True)
    stages = {name: {"seconds": s.seconds, **s.peak} for name, s in watched.stages.items()}
    return {"before": before, "stages": stages, "library": library.stat().st_size}


def open_watched(library: Path, turns: int = 4) -> dict[str, Any]:
    """Open a library in this process and run steps on one thread; return seconds and memory.

    ``open``, ``step`` and ``read``, a loop that sums as many bytes as the library has, are processor time: the least of
    a few turns.
    """
    import tilewright
    from tilewright.doctor.peak import read_seconds
    from tilewright.runtime.ndarray import numpy_dtype

    start = time.process_time()
    model = tilewright.load(library, threads=1)
    found = {"open": time.process_time() - start, "step": math.inf, "read": math.inf}
    values = {name: np.zeros(info.shape, numpy_dtype(info.dtype)) for name, info in model.inputs.items()}
    model.run(values)
    for _ in range(turns):
        start = time.process_time()
        model.run(values)
        found["step"] = min(found["step"], time.process_time() - start)
        found["read"] = min(found["read"], read_seconds(library.stat().st_size))
    return {**found, **memory()}


def session_watched(model: Path) -> dict[str, Any]:
    """Make ONNX Runtime's session in this process."""
    import onnxruntime

    start = time.perf_counter()
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    found = {"seconds": time.perf_counter() - start, **memory()}
    del session
    return found


def _in_process(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "benchmarks.large", *arguments], check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _megabytes(value: float) -> str:
    return f"{value / 1e6:,.0f} MB"


def _copied(path: Path) -> float:
    """Return the seconds of ``cp``."""
    copy = path.with_name("copy")
    start = time.perf_counter()
    subprocess.run(["cp", path, copy], check=True)
    seconds = time.perf_counter() - start
    copy.unlink()
    return seconds


def report(folder: Path, sizes: Sizes, weights: str, others: bool, executor: str = "auto") -> None:
    """Make the model, compile it, and print what it took."""
    start = time.perf_counter()
    model, library = make_model(folder, sizes, weights), folder / "model.so"
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"model: {_megabytes(size)}, made in {time.perf_counter() - start:.1f} s")
    found = _in_process("--compile", str(model), "--executor", executor)
    before = found["before"]["anonymous"]
    for name, stage in found["stages"].items():
        own = f"anonymous {_megabytes(stage['anonymous'] - before)}, mapped {_megabytes(stage['mapped'])}"
        print(f"  {name:10} {stage['seconds']:7.2f} s  {own}")
    total = sum(stage["seconds"] for stage in found["stages"].values())
    most = max(stage["anonymous"] for stage in found["stages"].values()) - before
    print(f"compile: {total:.1f} s, anonymous {_megabytes(most)} beside {_megabytes(before)} before")
    opened = _in_process("--open", str(library))
    print(f"library: {_megabytes(found['library'])}, opens in {opened['open']:.3f} s")
    share = opened["read"] / opened["step"]
    print(f"a step: {opened['step']:.3f} s on one thread, where reading takes {opened['read']:.3f} s ({share:.0%})")
    if others:
        print(f"cp: {_copied(library):.1f} s")
        library.unlink()
    if others and weights != "bfloat16":  # ONNX Runtime has no products of bfloat16 on processors
        session = _in_process("--session", str(model))
        kinds = ", ".join(f"{kind} {_megabytes(session[kind])}" for kind in KINDS)
        print(f"ONNX Runtime's session: {session['seconds']:.1f} s, {kinds}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark, or one process of it."""
    parser = argparse.ArgumentParser("python -m benchmarks.large", description=__doc__.split("\n\n")[0])
    for name, value in vars(Sizes()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of parameters")
    parser.add_argument("--weights", choices=("float32", "bfloat16", "int4"), default="float32")
    parser.add_argument("--folder", type=Path, help="where model and library go; a temporary one without it")
    parser.add_argument("--alone", action="store_true", help="without cp and ONNX Runtime")
    parser.add_argument(
        "--executor", choices=("auto", "vm"), default="auto", help="what runs it: vm as for named sizes"
    )
    for name in ("compile", "open", "session"):
        parser.add_argument(f"--{name}", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    sizes = Sizes(**{name: getattr(chosen, name) for name in vars(Sizes())}).scaled(chosen.scale)
    if chosen.compile:
        print(json.dumps(compile_watched(chosen.compile, chosen.compile.with_name("model.so"), chosen.executor)))
    elif chosen.open:
        print(json.dumps(open_watched(chosen.open)))
    elif chosen.session:
        print(json.dumps(session_watched(chosen.session)))
    else:
        folder = Path(tempfile.mkdtemp(prefix="tilewright-large-", dir=chosen.folder))
        try:
            report(folder, sizes, chosen.weights, not chosen.alone, chosen.executor)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    main()
