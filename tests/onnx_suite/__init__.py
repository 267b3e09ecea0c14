"""The backend suite of the ``onnx`` package, as its own runner counts it: ``python -m tests.onnx_suite``."""
