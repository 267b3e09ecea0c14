"""Check that a worker's processor is the one that is tuned for."""

from __future__ import annotations

import platform
from typing import Any

from tilewright.target.features import features, host_features
from tilewright.target.target import Target
from tilewright.version import __version__


def wanted_for(target: Target) -> dict[str, Any]:
    """Return the requirements on a worker that measures for ``target``, as JSON."""
    cpu = features(target)
    return {
        "arch": cpu.arch,
        "cpu": cpu.cpu,
        "features": list(cpu.names),
        "cores": cpu.cores,
        "version": __version__,
    }


def refusal(wanted: dict[str, Any]) -> str | None:
    """Return why this machine cannot measure for the processor ``wanted``, or None."""
    here = host_features()
    if wanted["version"] != __version__:
        return f"{platform.node()} has Tilewright {__version__}, the tuner {wanted['version']}: install the same"
    found = f"{platform.node()} is a {here.cpu} ({here.arch}) with {here.cores} cores"
    if (here.arch, here.cpu) != (wanted["arch"], wanted["cpu"]):
        return f"{found}, not the {wanted['cpu']} ({wanted['arch']}) that is tuned for"
    missing = sorted(set(wanted["features"]) - set(here.names))
    if missing:
        return f"{found}, which lacks {', '.join(missing)}"
    if here.cores != wanted["cores"]:
        return f"{found}; what is tuned for has {wanted['cores']}: give --target with -num-cores={here.cores}"
    return None
