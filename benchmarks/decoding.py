"""Language models token by token, beside ONNX Runtime: prompts and steps of Llama-like networks with random weights.

python -m benchmarks.decoding smollm --weights int4 --prompt 128 --steps 32
python -m benchmarks.decoding qwen --weights float32 --threads 2 --rounds 5
python -m benchmarks.decoding smollm --last --llama        # and llama.cpp of the same sizes (benchmarks/llama.py)

Each engine has a process of its own; they take turns, a prompt and its steps each. Files are as onnxruntime-genai has
them (``testing.language_models``): GroupQueryAttention, and MatMulNBits with blocks of 32 at accuracy level 4. ONNX
Runtime's past and present are one buffer, as genai binds them. Times are of the processor with one thread, and of the
clock with several, which need a machine that nothing else runs on. Beside them stands what reading the weights of a
step, and its cache, takes by a loop of as many threads that only reads (``peak.read_seconds``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import llama
from tilewright.testing.language_models import QWEN_500M, SMOLLM_135M, TINY, Sizes, decoder, save

SIZES = {"smollm": SMOLLM_135M, "qwen": QWEN_500M, "tiny": TINY}

Array = np.ndarray[Any, Any]
Run = Callable[[Array], Array]  # ids (1, length) behind those before -> logits of the last, (vocabulary,)


def tilewright_runs(path: Path, sizes: Sizes, capacity: int) -> Callable[[], Run]:
    """Make runs from an empty cache by Tilewright, of a library that is compiled first and opened, as users do."""
    import tilewright
    from tilewright.runtime.generator import Generator, _State

    dims = {"past_sequence_length": (0, capacity), "batch_size": 1}
    library = tilewright.compile(path, dims=dims, specialize=["sequence_length=1"]).save(path.with_suffix(".so"))
    generator = Generator(tilewright.load(library))

    def start() -> Run:
        state = _State(generator._names, [np.zeros(1, "int64")], capacity)
        return lambda ids: generator._step(state, ids)[0]

    return start


def onnxruntime_runs(path: Path, sizes: Sizes, capacity: int) -> Callable[[], Run]:
    """Make runs from an empty cache by ONNX Runtime, whose caches are buffers that it writes to."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["TVM_NUM_THREADS"])
    options.inter_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def start() -> Run:
        shape = (1, sizes.groups, capacity, sizes.size)
        names = [f"{layer}.{part}" for layer in range(sizes.layers) for part in ("key", "value")]
        caches = {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, "float32")) for name in names}
        binding, seen = session.io_binding(), 0
        for name, buffer in caches.items():
            binding.bind_ortvalue_input(f"past_key_values.{name}", buffer)
            binding.bind_ortvalue_output(f"present.{name}", buffer)

        def run(ids: Array) -> Array:
            nonlocal seen
            seen += ids.shape[1]
            binding.bind_cpu_input("input_ids", ids)
            binding.bind_cpu_input("attention_mask", np.ones((1, seen), "int64"))
            binding.bind_output("logits")
            session.run_with_iobinding(binding)
            logits: Array = binding.get_outputs()[-1].numpy()
            return logits[0, -1]

        return run

    return start


ENGINES = {"tilewright": tilewright_runs, "onnxruntime": onnxruntime_runs, "llama.cpp": llama.runs}


def serve(engine: str, path: Path, sizes: Sizes, capacity: int) -> None:
    """Answer lines of a prompt's and a generation's length by lines of seconds and tokens, until the input ends."""
    clock = time.process_time_ns if os.environ["TVM_NUM_THREADS"] == "1" else time.perf_counter_ns
    start = ENGINES[engine](path, sizes, capacity)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        run, ids = start(), np.random.default_rng(0).integers(0, sizes.vocabulary, (1, asked["prompt"]))
        seconds, tokens = [], []
        for _ in range(1 + asked["steps"]):
            began = clock()
            logits = run(ids)
            seconds.append((clock() - began) * 1e-9)
            tokens.append(int(logits.argmax()))
            ids = np.array([tokens[-1:]])
        print(json.dumps({"seconds": seconds, "tokens": tokens}), flush=True)


class Process:
    """An engine's process."""

    def __init__(self, engine: str, path: Path, chosen: argparse.Namespace) -> None:
        threads = str(chosen.threads)
        command = [sys.executable, "-m", "benchmarks.decoding", chosen.sizes, "--serve", engine, "--file", str(path)]
        lengths = ["--prompt", str(chosen.prompt), "--steps", str(chosen.steps)]
        self.process = subprocess.Popen(
            [*command, *lengths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, TVM_NUM_THREADS=threads, OMP_NUM_THREADS=threads),
        )  # fmt: skip
        self.answer()

    def answer(self) -> dict[str, Any]:
        """Return the next line that it writes."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("an engine ended; its message is above")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, prompt: int, steps: int) -> dict[str, Any]:
        """Have it run a prompt and steps."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"prompt": prompt, "steps": steps}) + "\n")
        self.process.stdin.flush()
        return self.answer()


def step_bytes(sizes: Sizes, weights: str, length: int) -> float:
    """Return the bytes of weights and cache that a step reads; weights of few bits have a float32 scale for 32."""
    s = sizes
    layer = s.width * (2 * s.width + 2 * s.groups * s.size + 3 * s.inner)
    count = s.layers * layer + s.width * s.vocabulary
    each = {"float32": 4.0, "int4": 0.5 + 4 / 32, "int8": 1 + 4 / 32}[weights]
    return count * each + 2 * s.layers * s.groups * s.size * length * 4


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", choices=SIZES)
    parser.add_argument("--weights", choices=["float32", "int4", "int8"], default="int4")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
    parser.add_argument("--steps", type=int, default=32, help="tokens that follow")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--last", action="store_true", help="logits of the last token of a prompt alone")
    parser.add_argument("--llama", action="store_true", help="llama.cpp too, which computes the last token's logits")
    parser.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> None:
    """Print the milliseconds of a prompt and of a step, of each engine."""
    chosen = parse_arguments()
    sizes = SIZES[chosen.sizes]
    if chosen.serve:
        return serve(chosen.serve, chosen.file, sizes, chosen.prompt + chosen.steps)
    from tilewright.doctor.peak import read_seconds

    with tempfile.TemporaryDirectory() as folder:
        path = save(decoder(sizes, weights=chosen.weights, last=chosen.last), Path(folder) / "model.onnx")
        files = {"tilewright": path, "onnxruntime": path}
        if chosen.llama:
            files["llama.cpp"] = llama.save(sizes, Path(folder) / "model.gguf")
        engines = {name: Process(name, file, chosen) for name, file in files.items()}
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in engines}
        bounds = []
        for _ in range(chosen.rounds):
            for name, process in engines.items():
                found[name].append(process.ask(chosen.prompt, chosen.steps))
            nbytes = step_bytes(sizes, chosen.weights, chosen.prompt + chosen.steps // 2)
            bounds.append(read_seconds(nbytes, chosen.threads))
        for process in engines.values():
            process.process.kill()
    bound = min(bounds)
    print("| engine | prompt, ms | step, ms, least | median | of reading |\n|---|---:|---:|---:|---:|")
    for name, turns in found.items():
        prompt = min(turn["seconds"][0] for turn in turns) * 1e3
        steps = [second * 1e3 for turn in turns for second in turn["seconds"][1:]]
        print(f"| {name} | {prompt:.1f} | {min(steps):.2f} | {np.median(steps):.2f} | {bound * 1e3 / min(steps):.2f} |")
    ours, others = (found[name][0]["tokens"] for name in ("tilewright", "onnxruntime"))
    same = sum(a == b for a, b in zip(ours, others, strict=True))
    print(f"{same} of {chosen.steps + 1} tokens are ONNX Runtime's; reading takes {bound * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
