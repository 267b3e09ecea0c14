"""The module ``tvm`` of processes that a script under ``python -m tilewright.tvm`` starts."""

import sys

del sys.modules["tvm"]  # this file, half loaded: the name is Tilewright's

import tilewright.tvm  # noqa: E402

sys.modules["tvm"] = tilewright
