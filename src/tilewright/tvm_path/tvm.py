"""What ``import tvm`` finds in a process that a script under ``python -m tilewright.tvm`` has started."""

import sys

del sys.modules["tvm"]  # this file, half loaded: the name is Tilewright's

import tilewright.tvm  # noqa: E402

sys.modules["tvm"] = tilewright
