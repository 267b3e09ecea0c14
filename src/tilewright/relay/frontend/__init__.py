"""Importers of each format, such as ``from_onnx``; ``import_model`` chooses (``door.py``)."""

from onnx import ModelProto

from tilewright.relay.frontend import common
from tilewright.relay.frontend.change_datatype import ChangeDatatype
from tilewright.relay.frontend.door import FrontEnd, import_model, list_frontends, register_frontend
from tilewright.relay.frontend.keras import from_keras
from tilewright.relay.frontend.keras import load as _load_keras
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.frontend.onnx.loading import ModelFile
from tilewright.relay.frontend.pytorch import from_pytorch
from tilewright.relay.frontend.tensorflow import from_tensorflow
from tilewright.relay.frontend.tensorflow import load as _load_tensorflow
from tilewright.relay.frontend.tflite import from_tflite
from tilewright.relay.frontend.tflite import load as _load_tflite
from tilewright.relay.frontend.torch import from_exported_program

register_frontend("onnx", from_onnx, suffixes=[".onnx"], types=[ModelProto, ModelFile])
register_frontend(
    "torch",
    from_exported_program,
    suffixes=[".pt2"],
    types=["torch.export.exported_program.ExportedProgram", "torch.nn.modules.module.Module"],
)
register_frontend(
    "tflite",
    _load_tflite,
    suffixes=[".tflite"],
    types=["tflite.Model.Model", "ai_edge_litert.schema_py_generated.Model"],
)

register_frontend("keras", _load_keras, suffixes=[".keras"], types=["keras.src.models.model.Model"])
register_frontend(
    "tensorflow",
    _load_tensorflow,
    suffixes=[".pb"],
    folders=["saved_model.pb"],
    types=["tensorflow.core.framework.graph_pb2.GraphDef", "tensorflow.python.framework.ops.Graph"],
)

__all__ = [
    "ChangeDatatype", "FrontEnd", "common", "from_exported_program", "from_keras", "from_onnx", "from_pytorch",
    "from_tensorflow", "from_tflite", "import_model", "list_frontends", "register_frontend",
]  # fmt: skip
