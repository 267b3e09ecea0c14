"""Importers of models: ``from_onnx``."""

from tilewright.relay.frontend.onnx import from_onnx

__all__ = ["from_onnx"]
