"""Changed models of TensorFlow, PyTorch, Keras and TensorFlow Lite: each is imported, or refused by one clear error.

Clear is a ``TilewrightError`` but no ``InternalError``, of one paragraph. What is changed are the parts of a valid
file: a name, a number, an attribute, an operand, an operator, a data type. ``python -m tests.fuzz frameworks`` tries
many; a number stands for a model and its change, ``python -m tests.fuzz.frameworks NUMBER`` tries it again.
"""

from __future__ import annotations

import functools
import io
import json
import os
import random
import re
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.search import SLOWEST, within
from tests.relay.frontend.tensorflow_graphs import FILE as TENSORFLOW_GRAPHS
from tests.relay.frontend.tflite_networks import MobileNet

from tilewright import relay
from tilewright.error import InternalError
from tilewright.ir.errors import TilewrightError
from tilewright.relay.frontend.tensorflow.proto import parsed

_NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 5, 7, 100, 2**20, 2**31 - 1, 2**31, 2**62)


def report(number: int) -> str | None:
    """Return what is wrong with the answer to a model; None where it is right."""
    rng = random.Random(number)
    read = rng.choice((_tensorflow, _tensorflow, _torch, _tflite, _torchscript, _keras))
    try:
        with within(SLOWEST, "the front end"):
            read(rng)
    except TilewrightError as error:
        if isinstance(error, InternalError) or not str(error).strip() or len(str(error)) > 4000:
            return _described(number, read, error)
    except Exception as error:
        return _described(number, read, error)
    return None


def _described(number: int, read: Callable[..., Any], error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
    return f"{number} ({read.__name__[1:]}): {type(error).__name__} at {place}: {str(error)[:300]}"


def search(seconds: float, first: int, found: Callable[[str], None]) -> int:
    """Try models for some seconds, and return how many; ``found`` is called with what is wrong."""
    end, number = time.monotonic() + seconds, first
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while time.monotonic() < end:
            problem = report(number)
            if problem is not None:
                found(problem)
            number += 1
    return number - first


# ---- TensorFlow ----


@functools.cache
def _graphs() -> list[bytes]:
    recorded = np.load(TENSORFLOW_GRAPHS)
    return [recorded[key].tobytes() for key in recorded if key.endswith("|graph")]


def _tensorflow(rng: random.Random) -> None:
    graph = parsed("Graph", rng.choice(_graphs()), "a graph")
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        _change_node(rng.choice(nodes), nodes, rng)
    relay.frontend.from_tensorflow(graph.SerializeToString())


def _change_node(node: Any, nodes: list[Any], rng: random.Random) -> None:
    other = rng.choice(nodes)
    match rng.randrange(7):
        case 0:
            node.op = other.op
        case 1 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(
                (other.name, f"{other.name}:1", "nothing", "^x", "")
            )
        case 2 if node.input:
            del node.input[rng.randrange(len(node.input))]
        case 3:
            node.input.append(other.name)
        case 4 if node.attr:
            del node.attr[rng.randrange(len(node.attr))]
        case 5 if node.attr and other.attr:
            rng.choice(node.attr).value.CopyFrom(rng.choice(other.attr).value)
        case _ if node.attr:
            _change_value(rng.choice(node.attr).value, rng)


def _change_value(value: Any, rng: random.Random) -> None:
    number = rng.choice(_NUMBERS)
    if value.HasField("list") and value.list.i:
        value.list.i[rng.randrange(len(value.list.i))] = number
    elif value.HasField("i"):
        value.i = number
    elif value.HasField("type"):
        value.type = rng.choice((0, 1, 3, 7, 8, 9, 10, 19, 20, 21, 99))
    elif value.HasField("shape") and value.shape.dim:
        rng.choice(value.shape.dim).size = number
    elif value.HasField("tensor"):
        _change_tensor(value.tensor, rng)
    elif value.HasField("b"):
        value.b = not value.b
    elif value.HasField("s"):
        value.s = rng.choice((b"NCHW", b"SAME", b"EXPLICIT", b"", b"\xff"))


def _change_tensor(tensor: Any, rng: random.Random) -> None:
    match rng.randrange(4):
        case 0:
            tensor.dtype = rng.choice((0, 1, 3, 7, 8, 9, 10, 14, 19, 99))
        case 1 if tensor.shape.dim:
            rng.choice(tensor.shape.dim).size = rng.choice(_NUMBERS)
        case 2 if tensor.content:
            width = 4 if len(tensor.content) % 4 == 0 else 1
            content = np.frombuffer(tensor.content, f"<u{width}").copy()
            content[rng.randrange(len(content))] = rng.choice(_NUMBERS) % (1 << 8 * width)
            tensor.content = content.tobytes()
        case _ if tensor.int_val:
            tensor.int_val[rng.randrange(len(tensor.int_val))] = rng.choice((-2, -1, 0, 1, 2, 3, 99, 2**31 - 1))


# ---- PyTorch ----


@functools.cache
def _network() -> tuple[Any, tuple[Any, Any]]:
    """Return a module in evaluation mode, and inputs for it."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4)
            self.head = torch.nn.Linear(4, 5)

        def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
            y = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
            y = torch.cat([y, y.flip(2)], 3).transpose(1, 2)[:, 1:].permute(0, 2, 1, 3).mean((2, 3))
            return torch.softmax(self.head(y.index_select(0, n).view(-1, 4)), -1).topk(2)[0]

    return Net().eval(), (torch.zeros(3, 3, 6, 5), torch.tensor([1, 0]))


@functools.cache
def _programs() -> list[bytes]:
    import torch

    net, given = _network()
    sizes = ({0: torch.export.Dim("batch", min=2, max=64)}, None)
    made = []
    for dynamic in (None, sizes):
        file = io.BytesIO()
        torch.export.save(torch.export.export(net, given, dynamic_shapes=dynamic), file)
        made.append(file.getvalue())
    return made


def _torch(rng: random.Random) -> None:
    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return data
        return json.dumps(_changed(json.loads(data), rng)).encode()

    with _archive("model.pt2", rng.choice(_programs()), change) as path:
        relay.frontend.from_exported_program(path)


@contextmanager
def _archive(file: str, original: bytes, change: Callable[[str, bytes], bytes]) -> Iterator[Path]:
    """Write an archive anew, with changed entries."""
    source = zipfile.ZipFile(io.BytesIO(original))
    with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as folder:
        path = Path(folder, file)
        with zipfile.ZipFile(path, "w") as made:
            for entry in source.namelist():
                made.writestr(entry, change(entry, source.read(entry)))
        yield path


def _changed(document: Any, rng: random.Random, numbers: Sequence[int] = _NUMBERS) -> Any:
    """Return JSON with a few changed numbers and names, and lists that miss an element or have it twice."""
    places = list(_places(document))
    names = [holder[key] for holder, key in places if isinstance(holder[key], str)]
    for _ in range(rng.choice((1, 1, 2, 4))):
        holder, key = rng.choice(places)
        value = holder[key] if isinstance(holder, dict) or key < len(holder) else None
        if isinstance(value, bool):
            holder[key] = not value
        elif isinstance(value, int):
            holder[key] = rng.choice(numbers)
        elif isinstance(value, str):
            holder[key] = rng.choice(names)
        elif isinstance(value, list) and value:
            at = rng.randrange(len(value))
            value[at : at + 1] = rng.choice(([], [value[at], value[at]]))
    return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        if key not in ("metadata", "schema_version"):
            yield value, key
            if isinstance(value[key], (dict, list)):
                yield from _places(value[key])


# ---- TorchScript ----


@functools.cache
def _scripts() -> list[bytes]:
    import torch

    def looping(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        parts = [x.mean(1)]
        for i in range(3):
            if x.size(0) > i:
                parts.append(parts[-1][:, 1:4] * float(i) + parts[0][:, 2:5])
        return torch.stack(parts[1:], dim=0).index_select(0, n).clamp(min=0.5).sum()

    net, given = _network()
    made = []
    for script in (torch.jit.trace(net, given), torch.jit.script(looping)):
        file = io.BytesIO()
        torch.jit.save(script, file)
        made.append(file.getvalue())
    return made


_WORDS = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?|(?<=torch\.)\w+|\b(?:True|False|None|_\d+|x|n|parts)\b")


def _torchscript(rng: random.Random) -> None:
    """Change numbers, operators and operands of a script's source; one that torch cannot load is none of ours."""
    import torch

    def change(name: str, data: bytes) -> bytes:
        return _rewritten(data.decode(), rng).encode() if name.endswith(".py") else data

    with _archive("model.pt", rng.choice(_scripts()), change) as path:
        try:
            script = torch.jit.load(path)
        except Exception:
            return
        relay.frontend.from_pytorch(script, [("x", (3, 3, 6, 5)), ("n", ((2,), "int64"))])


def _rewritten(source: str, rng: random.Random) -> str:
    head, colon, body = source.partition("def ")  # not the module's attributes
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_WORDS.finditer(body))
        if not places:
            break
        place, word = rng.choice(places), rng.choice(places).group()
        if re.match(r"-?\d", place.group()) and rng.random() < 0.7:
            word = str(rng.choice(_NUMBERS))
        body = body[: place.start()] + word + body[place.end() :]
    return head + colon + body


# ---- Keras ----

_SMALL = tuple(number for number in _NUMBERS if number <= 100)  # layers of other sizes would take all memory


@functools.cache
def _models() -> list[bytes]:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    layers = keras.layers
    x = keras.Input((8, 9, 3), name="x")
    y = layers.MaxPooling2D(2)(layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(x))))
    z = layers.Dense(4, "softmax")(layers.Flatten()(layers.Concatenate()([y, layers.UpSampling2D(1)(y)])))
    words = keras.Input((6,), dtype="int32", name="words")
    mean = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(layers.Embedding(11, 5)(words)))
    made = []
    with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as folder:
        for model in (keras.Model(x, z), keras.Model(words, layers.Dense(2)(mean))):
            path = Path(folder, "model.keras")
            model.save(path)
            made.append(path.read_bytes())
    return made


def _keras(rng: random.Random) -> None:
    """Change a file's description of the layers, or bytes of its weights, or cut it off."""
    original, kind = rng.choice(_models()), rng.randrange(6)

    def change(name: str, data: bytes) -> bytes:
        if kind and name == "config.json":
            return json.dumps(_changed(json.loads(data), rng, _SMALL)).encode()
        if not kind and name.endswith(".h5"):
            damaged = bytearray(data)
            for _ in range(3):
                damaged[rng.randrange(min(len(data), 4096))] = rng.randrange(256)
            return bytes(damaged[: rng.choice((len(data), len(data) // 2))])
        return data

    with _archive("model.keras", original, change) as path:
        relay.frontend.from_keras(path, {})


# ---- TensorFlow Lite ----


@functools.cache
def _networks() -> list[bytes]:
    return [MobileNet(dtype, 16, 8, 2).file.data for dtype in ("float32", "int8")]


def _tflite(rng: random.Random) -> None:
    """Change words of a file to other small numbers: sizes, offsets, indices of tensors and operators."""
    data = bytearray(rng.choice(_networks()))
    words = [at for at in range(0, len(data) - 4, 4) if int.from_bytes(data[at : at + 4], "little") < 4096]
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.choice(words)
        data[at : at + 4] = (rng.choice((*range(12), 16, 255, 2**31 - 1, 2**32 - 1))).to_bytes(4, "little")
    relay.frontend.from_tflite(bytes(data))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(report(int(argument)) or f"{argument}: right")
