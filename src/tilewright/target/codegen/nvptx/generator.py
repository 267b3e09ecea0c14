"""The code generator of the kinds ``cuda`` and ``nvptx``: PTX of all kernels, for each architecture of the target."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tilewright.ir.transform import PassContext
from tilewright.runtime.module import Module
from tilewright.runtime.registry import need_global_func
from tilewright.target.codegen.common.emitter import exported_name
from tilewright.target.codegen.nvptx.architecture import architectures, device_features
from tilewright.target.codegen.nvptx.kernel import kernel_ir
from tilewright.target.device_build import device_part, function_table
from tilewright.target.target import Target
from tilewright.target.workers import Batch, CompileJob, pool
from tilewright.tir.function import PrimFunc

_HEAD = re.compile(r"\A.*?\.address_size \d+\n", re.DOTALL)


def joined(texts: Sequence[str]) -> str:
    """Join the PTX of several compilations for one architecture: the head of the first, and the bodies of all."""
    return "".join([*texts[:1], *(_HEAD.sub("", text, count=1) for text in texts[1:])])


class PTXGenerator:
    """PTX of kernels, in a module of type ``cuda``: a text for each architecture, one after the other."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._architectures = architectures(target)
        self._level = int(PassContext.current().option("target.opt_level"))
        self._functions: list[PrimFunc] = []
        self._batch = Batch(pool())

    def add(self, func: PrimFunc) -> None:
        """Write the kernel's IR, and have it compiled for each architecture."""
        kernel = device_part(func)
        self._functions.append(kernel)
        for architecture in self._architectures:
            text, cpu = kernel_ir(kernel, architecture), device_features(architecture)
            self._batch.add(CompileJob(exported_name(kernel), text, cpu, self._level, "asm"))

    def finish(self) -> Module:
        """Wait for the texts; the module of all kernels."""
        texts, count = [text.decode() for text in self._batch.results()], len(self._architectures)
        ptx = "\n".join(joined(texts[i::count]) for i in range(count))
        create = need_global_func("runtime.module.create_cuda")
        made: Module = create(ptx, "ptx", json.dumps(function_table(self._functions)), "")
        return made
