"""Writing a model: whole or not at all, with its weights in a file beside it where they are too large for one."""

from __future__ import annotations

from pathlib import Path

import onnx

from tilewright.runtime.partial_files import whole_files

_LARGEST_FILE = 1 << 30  # bytes of weights; protobuf ends at 2 GiB


def nbytes_of(model: onnx.ModelProto) -> int:
    """Return the bytes of a model's weights."""
    return sum(len(t.raw_data) or len(t.SerializeToString()) for t in model.graph.initializer)


def file_bytes(path: Path) -> int:
    """Return the bytes of a model's file and of the files beside it that hold its weights."""
    model = onnx.load(path, load_external_data=False)
    external = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    names = {entry.value for tensor in external for entry in tensor.external_data if entry.key == "location"}
    return path.stat().st_size + sum((path.parent / name).stat().st_size for name in names)


def save_model(model: onnx.ModelProto, path: Path) -> None:
    """Write ``path``, and ``path.data`` for large weights; what was there stays if that fails or is interrupted."""
    with whole_files(path.parent, last=path.name) as folder:
        file = folder / path.name
        if nbytes_of(model) > _LARGEST_FILE:
            apart = onnx.ModelProto()
            apart.CopyFrom(model)  # saving takes the weights out of it
            onnx.save(apart, file, save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024)
        else:
            onnx.save(model, file)
