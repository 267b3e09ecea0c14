"""Importers of each format, such as ``from_onnx``; ``import_model`` chooses (``door.py``).

``context.py`` is the base of their converters' contexts; ``dimensions.py``, ``dynamic.py`` and ``windows.py`` are about
named dimensions, shapes known at run time, and windows. ``common.py`` has TVM's helpers for front ends outside of this
package, ``change_datatype.py`` the pass ``ChangeDatatype``.

An importer's modules, and the packages that it reads models with, are loaded when its name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.load_on_use import load_on_use
from tilewright.relay.frontend.door import FrontEnd, import_model, list_frontends, register_frontend

if TYPE_CHECKING:
    from tilewright.relay.frontend import common
    from tilewright.relay.frontend.change_datatype import ChangeDatatype
    from tilewright.relay.frontend.keras import from_keras
    from tilewright.relay.frontend.onnx import from_onnx
    from tilewright.relay.frontend.pytorch import from_pytorch
    from tilewright.relay.frontend.tensorflow import from_tensorflow
    from tilewright.relay.frontend.tflite import from_tflite
    from tilewright.relay.frontend.torch import from_exported_program

register_frontend(
    "onnx",
    f"{__name__}.onnx:from_onnx",
    suffixes=[".onnx"],
    types=["onnx.onnx_ml_pb2.ModelProto", f"{__name__}.onnx.loading.ModelFile"],
)
register_frontend(
    "torch",
    f"{__name__}.torch:from_exported_program",
    suffixes=[".pt2"],
    types=["torch.export.exported_program.ExportedProgram", "torch.nn.modules.module.Module"],
)
register_frontend(
    "tflite",
    f"{__name__}.tflite:load",
    suffixes=[".tflite"],
    types=["tflite.Model.Model", "ai_edge_litert.schema_py_generated.Model"],
)
register_frontend("keras", f"{__name__}.keras:load", suffixes=[".keras"], types=["keras.src.models.model.Model"])
register_frontend(
    "tensorflow",
    f"{__name__}.tensorflow:load",
    suffixes=[".pb"],
    folders=["saved_model.pb"],
    types=["tensorflow.core.framework.graph_pb2.GraphDef", "tensorflow.python.framework.ops.Graph"],
)


__getattr__, __dir__ = load_on_use(
    __name__,
    [".change_datatype", ".common", ".keras", ".onnx", ".pytorch", ".tensorflow", ".tflite", ".torch"],
    {
        ".change_datatype": ("ChangeDatatype",),
        ".keras": ("from_keras",),
        ".onnx": ("from_onnx",),
        ".pytorch": ("from_pytorch",),
        ".tensorflow": ("from_tensorflow",),
        ".tflite": ("from_tflite",),
        ".torch": ("from_exported_program",),
    },
)


__all__ = [
    "ChangeDatatype", "FrontEnd", "common", "from_exported_program", "from_keras", "from_onnx", "from_pytorch",
    "from_tensorflow", "from_tflite", "import_model", "list_frontends", "register_frontend",
]  # fmt: skip
