"""The result of ``relay.build`` for the graph executor: graph, code and parameters together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ..device import cpu
from ..module import Module
from ..ndarray import NDArray
from ..packed_func import PackedFunc
from ..params import as_ndarrays
from ..registry import need_global_func
from .aot import AOTExecutorFactoryModule as AOTExecutorFactoryModule


class GraphExecutorFactoryModule:
    """A compiled network.

    ``factory["default"](dev)`` makes an executor; ``graph, lib, params = factory`` is the form of TVM before
    0.7.

    Args:
        ir_mod: the module that was compiled.
        target: the target of the compilation.
        executor: the executor's name, "graph".
        graph_json_str: the graph.
        libmod: the compiled functions.
        libmod_name: the network's name; "default" unless ``relay.build`` got another.
        params: the parameters by name.
        linked: whether the functions have the parameters (``-link-params``), so that the library needs no others.
        function_metadata: the compiler's metadata of each function.
    """

    def __init__(
        self,
        ir_mod: Any,
        target: Any,
        executor: Any,
        graph_json_str: str,
        libmod: Module,
        libmod_name: str,
        params: Mapping[str, Any],
        function_metadata: Any = None,
        linked: bool = False,
    ) -> None:
        self.ir_mod = ir_mod
        self.target = target
        self.executor = executor
        self.graph_json = graph_json_str
        self.lib = libmod
        self.libmod_name = libmod_name
        self.function_metadata = function_metadata
        self.build_report: Any = None
        self._linked = as_ndarrays(params) if linked else None
        pairs = [item for pair in as_ndarrays(params).items() for item in pair] if not linked else []
        create = need_global_func("tvm.graph_executor_factory.create")
        self.module: Module = create(graph_json_str, libmod, libmod_name, *pairs)

    @cached_property
    def params(self) -> dict[str, NDArray]:
        """The parameters by name; those that are views of the model's files are copied now."""
        if self._linked is not None:
            return {name: value.copyto(cpu()) for name, value in self._linked.items()}
        name_of, param = self.module["get_param_name"], self.module["get_param"]
        return {name_of(i): param(i) for i in range(self.module["get_num_params"]())}

    def get_graph_json(self) -> str:
        """Return the graph."""
        return self.graph_json

    def get_executor_config(self) -> str:
        """Return the graph, which TVM calls the executor's configuration."""
        return self.graph_json

    def get_params(self) -> dict[str, NDArray]:
        """Return the parameters by name."""
        return self.params

    def get_lib(self) -> Module:
        """Return the compiled functions."""
        return self.lib

    def get_source(self, fmt: str = "") -> str:
        """Return the text of the compiled functions."""
        return self.lib.get_source(fmt)

    @property
    def imported_modules(self) -> list[Module]:
        """The modules that make up the network."""
        return self.module.imported_modules

    def export_library(
        self, file_name: str | Path, fcompile: Any = None, addons: list[str] | None = None, **kwargs: Any
    ) -> str:
        """Write graph, code and parameters to one library; see :func:`runtime.export.export_library`."""
        return self.module.export_library(file_name, fcompile, addons, **kwargs)

    def __getitem__(self, item: str) -> PackedFunc:
        """Return a function of the module; the network's name returns the one that makes executors."""
        return self.module[item]

    def __iter__(self) -> Iterator[Any]:
        """Yield graph, library and parameters, for the three-value form."""
        return iter((self.graph_json, self.lib, self.params))

    def operator_count(self) -> int:
        """Return how many operators (fused functions) a run calls."""
        return sum(node["op"] != "null" for node in json.loads(self.graph_json)["nodes"])
