"""A device whose memory the host cannot touch. ``device.c`` is the device, all that is here finds it."""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from tilewright import runtime


def load() -> None:
    """Add the device "guarded" to this process."""
    folder = Path(__file__).parent
    library = next(path for suffix in EXTENSION_SUFFIXES if (path := folder / f"device{suffix}").exists())
    runtime.load_device_plugin(library)
