"""Keras models, by the graph that Keras's back end makes of them: TensorFlow's, or torch.export's.

A model of another back end (JAX) is saved, and its file read where Keras runs on one of these.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.runtime import ndarray as nd

Shapes = Mapping[str, Sequence[Any]]
Result = tuple[IRModule, dict[str, nd.NDArray]]
_LAYOUTS = ("NCHW", "NHWC", "NCDHW", "NDHWC", "NCW", "NWC")


class KerasImportError(TilewrightError):
    """A Keras model that cannot be imported."""


def from_keras(model: Any, shape: Shapes | None = None, layout: str = "NCHW") -> Result:
    """Import a Keras model.

    Parameters
    ----------
    model : a Keras 3 model, or the path of one that was saved (``.keras``).
    shape : shapes of inputs by name, in the layout; what is None in a model's own shape is known when the module runs,
        or 1 where torch.export cannot leave it open.
    layout : of inputs and outputs with 4 and 5 dimensions: "NCHW" puts channels first, as TVM 0.8 does by default;
        "NHWC" leaves them as the model has them.

    Returns
    -------
    The module, and the weights by name.

    Raises
    ------
    KerasImportError where Keras is not installed, or the model is none or cannot be exported.
    """
    if layout not in _LAYOUTS:
        raise KerasImportError(f"the layout {layout!r} is unknown; known are {', '.join(_LAYOUTS)}")
    keras = _keras()
    model = _loaded(keras, model)
    first = layout.startswith("NC") and len(layout) > 3
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return _by_tensorflow(model, shape or {}, first)
    if backend == "torch":
        return _by_torch(model, shape or {}, first)
    raise KerasImportError(
        f"Keras runs on {backend!r}, whose graphs are not read; save the model, model.save('model.keras'), and compile "
        "that file with KERAS_BACKEND=torch or KERAS_BACKEND=tensorflow"
    )


def load(source: Any, shape: Shapes | None = None) -> Result:
    """Import a file or a model for ``import_model``: inputs and outputs are as the model has them."""
    return from_keras(source, shape, layout="NHWC")


def _choose_backend() -> None:
    """Let Keras begin on torch where TensorFlow, its own default, is not installed."""
    if "keras" not in sys.modules and importlib.util.find_spec("tensorflow") is None:
        os.environ.setdefault("KERAS_BACKEND", "torch")


def _keras() -> Any:
    _choose_backend()
    try:
        import keras
    except ImportError as error:
        raise KerasImportError(
            f"a Keras model needs Keras and its back end; install them (pip install keras torch) ({error})"
        ) from None
    return keras


def _loaded(keras: Any, model: Any) -> Any:
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        if not os.path.isfile(path):
            raise KerasImportError(f"{path}: there is no such file")
        if path.endswith(".keras") and not zipfile.is_zipfile(path):
            raise KerasImportError(f"{path}: no Keras model, or cut off: it is no archive of files")
        try:
            model = keras.saving.load_model(path, compile=False)
        except Exception as error:
            why = str(error).strip().splitlines()
            raise KerasImportError(f"{path}: no Keras model, or cut off: {why[0] if why else error}") from error
    if not isinstance(model, keras.Model):
        raise KerasImportError(f"expected a Keras model or the path of one, not a {type(model).__name__}")
    if not getattr(model, "inputs", None):
        raise KerasImportError(f"the model {model.name!r} has no inputs yet; build it, or call it once")
    return model


def _specs(model: Any, shape: Shapes, first: bool) -> list[tuple[str, list[Any], str]]:
    """Return the name, the shape with channels last, and the data type of each input."""
    names = [tensor.name for tensor in model.inputs]
    for name in shape:
        if name not in names:
            raise KerasImportError(f"the model has no input {name!r}; its inputs are {', '.join(map(repr, names))}")
    found = []
    for tensor in model.inputs:
        dims = list(tensor.shape)
        if tensor.name in shape:
            given = list(shape[tensor.name])
            if len(given) != len(dims):
                raise KerasImportError(f"the input {tensor.name!r} has {len(dims)} dimensions; {given} was given")
            dims = [given[0], *given[2:], given[1]] if first and len(dims) > 3 else given
        found.append((tensor.name, dims, str(tensor.dtype)))
    return found


def _by_tensorflow(model: Any, shape: Shapes, first: bool) -> Result:
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    from tilewright.relay.frontend.tensorflow import import_source
    from tilewright.relay.frontend.tensorflow.loading import frozen

    specs = [tf.TensorSpec([_known(d) for d in dims], dtype, name=name) for name, dims, dtype in
             _specs(model, shape, first)]  # fmt: skip

    def called(*tensors: Any) -> Any:
        return tf.nest.flatten(model(_as_given(model, tensors), training=False))

    function = tf.function(called, input_signature=specs, autograph=False).get_concrete_function()
    source = frozen(convert_variables_to_constants_v2(function))
    return import_source(source, channels_first=first)


def _known(dim: Any) -> int | None:
    return int(dim) if isinstance(dim, int) and dim >= 0 else None


def _as_given(model: Any, values: Sequence[Any]) -> Any:
    """Return values of the inputs in the structure that the model takes: one alone, a list, a mapping."""
    import keras

    structure = getattr(model, "input", None)
    return values[0] if structure is None else keras.tree.pack_sequence_as(structure, list(values))


def _by_torch(model: Any, shape: Shapes, first: bool) -> Result:
    from tilewright.relay.frontend.torch import from_exported_program

    specs = _specs(model, shape, first)
    mod, params = from_exported_program(_exported(model, specs))
    return renamed(mod, [name for name, _, _ in specs], params, first), params


def _exported(model: Any, specs: Sequence[tuple[str, list[Any], str]]) -> Any:
    """Return torch's program of a model, for any size of what is open where that can be exported."""
    import torch

    class Inference(torch.nn.Module):
        """Takes the inputs one by one; what Keras's layers do in training does not follow from ``eval()``."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            """Return what the model computes."""
            return model(_as_given(model, tensors), training=False)

    is_open = any(_known(d) is None for _, dims, _ in specs for d in dims)
    sizes = (tuple(_open_sizes(specs)),) if is_open else None  # of *tensors
    for unknown, dynamic in ((2, sizes), (1, None)) if is_open else ((1, None),):
        given = [
            torch.zeros([_known(d) or unknown for d in dims], dtype=getattr(torch, dtype)) for _, dims, dtype in specs
        ]
        try:
            with torch.no_grad():
                return torch.export.export(Inference().eval(), tuple(given), dynamic_shapes=dynamic)
        except Exception as error:
            why = str(error).strip().splitlines()
    raise KerasImportError(f"torch.export does not export the model {model.name!r}: {why[0]}")


def _open_sizes(specs: Sequence[tuple[str, list[Any], str]]) -> list[dict[int, Any]]:
    """Return torch's dimensions of what is open, ``x_1`` for axis 1 of the input x; all inputs share the first.

    A dimension that ``shape`` gave a name keeps it.
    """
    import torch

    found: list[dict[int, Any]] = []
    for name, dims, _ in specs:
        owners = [specs[0][0] if i == 0 else name for i in range(len(dims))]
        chosen = [d if isinstance(d, str) else f"{owners[i]}_{i}" for i, d in enumerate(dims)]
        names = [re.sub(r"\W", "_", name) for name in chosen]
        found.append({i: torch.export.Dim(names[i], min=1) for i, d in enumerate(dims) if _known(d) is None})
    return found


def renamed(mod: IRModule, names: Sequence[str], params: Mapping[str, Any], first: bool) -> IRModule:
    """Return a module whose inputs have the model's names, and are with channels first where that is asked for."""
    from tilewright.ir.type import TensorType
    from tilewright.relay import op as relay_op
    from tilewright.relay.expr import Function, Tuple, Var
    from tilewright.relay.frontend.context import typed
    from tilewright.relay.function_attributes import OUTPUT_NAMES
    from tilewright.relay.visitor import substitute

    function = mod["main"]
    inputs = [v for v in function.params if v.name_hint not in params]
    made, binds = [], {}
    for var, name in zip(inputs, names, strict=True):
        type_ = var.checked_type
        turn = first and len(type_.shape) > 3
        dims = [type_.shape[0], type_.shape[-1], *type_.shape[1:-1]] if turn else type_.shape
        new = Var(name, TensorType(dims, type_.dtype))
        made.append(new)
        binds[var] = typed(relay_op.transpose(new, axes=(0, *range(2, len(dims)), 1))) if turn else new
    body = substitute(function.body, binds)
    fields = list(body.fields) if isinstance(body, Tuple) else [body]
    turned = [_channels_first(typed(f)) if first else f for f in fields]
    whole = Tuple(turned) if isinstance(body, Tuple) else turned[0]
    rest = [v for v in function.params if v.name_hint in params]
    changed = IRModule.from_expr(Function([*made, *rest], whole))
    return changed.with_attr(OUTPUT_NAMES.key, mod.attrs[OUTPUT_NAMES.key]) if mod.attrs else changed


def _channels_first(value: Any) -> Any:
    from tilewright.relay import op as relay_op

    rank = len(value.checked_type.shape)
    return relay_op.transpose(value, axes=(0, rank - 1, *range(1, rank - 1))) if rank > 3 else value


__all__ = ["KerasImportError", "from_keras", "load"]
