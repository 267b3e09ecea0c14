"""Importers of models: ``from_onnx``, and ``import_model`` for the formats of installed front ends (``door.py``)."""

from onnx import ModelProto

from tilewright.relay.frontend.door import FrontEnd, import_model, list_frontends, register_frontend
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.frontend.onnx.loading import ModelFile

register_frontend("onnx", from_onnx, suffixes=[".onnx"], types=[ModelProto, ModelFile])

__all__ = ["FrontEnd", "from_onnx", "import_model", "list_frontends", "register_frontend"]
