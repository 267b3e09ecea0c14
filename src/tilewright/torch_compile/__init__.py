"""Tilewright as a backend of ``torch.compile``::

    model = torch.compile(model, backend="tilewright", options={"freezing": True})

TorchDynamo finds it by the entry point ``tilewright`` of the group ``torch_dynamo_backends``; nothing is imported for
it. AOTAutograd takes the graph apart into forward and backward. Each of them is split into what Tilewright computes
and what stays in PyTorch (``partition.py``), after ``decompositions.py``; compiled (``compiler.py``), kept on disk
(``library.py``) and run on the memory of torch's tensors (``run.py``). ``plan.py`` is where inputs and outputs are,
``aliases.py`` outputs that share memory, ``freezing.py`` weights as constants, ``options.py`` the options.
docs/frontends.md says what a user sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from tilewright.torch_compile.compiler import compile_graph
from tilewright.torch_compile.decompositions import decompositions
from tilewright.torch_compile.freezing import compile_frozen, constant_inputs
from tilewright.torch_compile.options import Options


def tilewright(
    gm: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of TorchDynamo.

    Args:
        gm: the graph.
        example_inputs: its inputs.
        options: as :class:`Options` has them.
        mode: torch's modes; "default" alone, since there are no others here.

    Raises:
        TilewrightError: an option does not exist or has a wrong value.
    """
    chosen = Options.of(options, mode)
    constants = constant_inputs(gm, example_inputs) if chosen.freezing else {}
    compile_ = partial(compile_graph, chosen)
    backend = aot_autograd(
        fw_compiler=compile_,
        bw_compiler=compile_,
        inference_compiler=partial(compile_frozen, chosen, constants) if constants else compile_,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
    )
    compiled: Callable[..., Any] = backend(gm, example_inputs)
    return compiled


__all__ = ["Options", "tilewright"]
