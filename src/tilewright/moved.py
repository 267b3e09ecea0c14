"""Modules under more than one name: TVM 0.8's, or that of an earlier release, beside where the code is.

A module has one identity under all its names: ``tilewright.autotvm.tuner is tilewright.tuning.tuner``.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

MOVED = {
    "tilewright.autotvm.feature": "tilewright.tuning.tuner.feature",
    "tilewright.autotvm.graph_tuner": "tilewright.tuning.graph_tuner",
    "tilewright.autotvm.measure.rpc_runner": "tilewright.tuning.measure.measure_methods",
    "tilewright.autotvm.measure": "tilewright.tuning.measure",
    "tilewright.autotvm.task.relay_integration": "tilewright.tuning.extraction",
    "tilewright.autotvm.tuner": "tilewright.tuning.tuner",
    "tilewright.cluster": "tilewright.tuning.cluster",
    "tilewright.contrib.debugger.debug_runtime": "tilewright.runtime.executor.debug",
    "tilewright.contrib.graph_runtime": "tilewright.runtime.executor.graph",
    "tilewright.measure": "tilewright.tuning.processes",
    "tilewright.relay.backend.executor_factory": "tilewright.runtime.executor.factory",
    "tilewright.relay.backend.name_transforms": "tilewright.relay.name_transforms",
    "tilewright.relay.backend.utils": "tilewright.relay.name_transforms",
    "tilewright.relay.transform.infer_layout_utils": "tilewright.relay.op.layout_rules",
    "tilewright.relay.transform.mixed_precision": "tilewright.relay.op.mixed_precision",
    "tilewright.relay.frontend.onnx.early": "tilewright.relay.frontend.onnx.legacy_opsets",
    "tilewright.relay.frontend.onnx.placement": "tilewright.relay.frontend.onnx.unpooling",
    "tilewright.relay.frontend.onnx.staging": "tilewright.relay.frontend.onnx.host_stages",
    "tilewright.relay.transform.memory.grow_in_place": "tilewright.relay.transform.memory.append_in_place",
    "tilewright.topi.sparse": "tilewright.topi.sparse_tensors",
    "tilewright.relay.transform.precision.keep_halves": "tilewright.relay.transform.precision.keep_half_precision",
}


class SameModule:
    """A finder and loader of modules under other names: ``names`` maps a module's, or a package's, to its own.

    ``but`` is the module that has no other name. It stands before Python's own finders, which would load the modules of
    a package under its other name a second time.
    """

    def __init__(self, names: Mapping[str, str], but: str = "") -> None:
        self.names, self.but = names, but

    def own_name(self, fullname: str) -> str | None:
        """The name of the module that ``fullname`` stands for; None where it stands for none."""
        for other, own in self.names.items():
            if fullname == other or fullname.startswith(f"{other}."):
                return own + fullname.removeprefix(other)
        return None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        own_name = self.own_name(fullname)
        if own_name is None or own_name == self.but:
            return None
        try:
            module = importlib.import_module(own_name)
        except ModuleNotFoundError as error:
            if error.name != own_name:
                raise
            return None
        loader: Any = self  # the classes of importlib.abc bring what takes half of the time of importing Tilewright
        return importlib.machinery.ModuleSpec(fullname, loader, is_package=hasattr(module, "__path__"))

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = sys.modules[self.own_name(spec.name) or spec.name]
        spec.loader_state = (module.__spec__, module.__name__)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the name and origin of the module, which ran long ago and which importlib has just changed."""
        assert module.__spec__ is not None
        spec, name = module.__spec__.loader_state
        module.__spec__, module.__name__ = spec, name
        module.__loader__, module.__package__ = spec.loader, spec.parent
