"""The functions by which TVM 0.8 calls an ahead-of-time program without a runtime: parts of its Model Library Format.

=========================  ===========================================================================================
``-interface-api=c``       a header with structures of inputs and outputs, ``tvmgen_NAME_run(inputs, outputs)``, and
                           ``tvmgen_NAME_run_in``, which takes the workspace
``-interface-api=packed``  a packed function ``tvmgen_NAME_run`` of the inputs' and the outputs' tensors
=========================  ===========================================================================================

``tvmgen_NAME_run`` takes the workspace from the platform, by one call of ``TVMBackendAllocWorkspace`` for each part of
it; a program that needs none calls nothing.
"""

from __future__ import annotations

from tilewright.micro import templates
from tilewright.micro.bundle import Bundle
from tilewright.micro.names import c_names, plain_name
from tilewright.micro.pools import platform_texts
from tilewright.runtime.error import TVMError
from tilewright.runtime.executor.aot import AOTExecutorFactoryModule


def has_c_interface(factory: AOTExecutorFactoryModule) -> bool:
    """Return whether the target of a program asks for the interface of structures (``-interface-api=c``)."""
    return str(factory.target.attrs.get("interface-api", "packed")) == "c"


def c_interface(factory: AOTExecutorFactoryModule, name: str) -> tuple[str, list[str]]:
    """Return the header and the sources (code, then data) of the interface of structures.

    Raises
    ------
    TVMError : two inputs' names are one identifier of C
    """
    outputs = factory.layout.outputs
    results = ["output"] if len(outputs) == 1 else [f"output{i}" for i in range(len(outputs))]
    bundle = Bundle(factory, name, inputs=_input_names(factory), outputs=results, run=f"{name}_run_in")
    header = bundle.header().replace("#ifdef __cplusplus\n}", templates.PLATFORM_RUN.format(**bundle.values), 1)
    run = templates.RUN_ON_PLATFORM.format(
        declaration=templates.STRUCT_RUN.format(**bundle.values),
        call="{run}(inputs, outputs, {pool_arguments})".format(**bundle.values),
        includes=f'#include "{name}.h"', **platform_texts(factory.layout, name),
    )  # fmt: skip
    return header, [bundle.source(), bundle.weights() + run]


def packed_interface(factory: AOTExecutorFactoryModule, name: str) -> list[str]:
    """Return the sources (code, then data and the packed function) of the packed interface."""
    layout = factory.layout
    bundle = Bundle(factory, name)
    tensors = [f"tw_data(args, {i})" for i in range(len(layout.inputs) + len(layout.outputs))]
    weights = f"(void*){name}_weights" if layout.constant_bytes else "NULL"
    pools = [pool.name for pool in layout.pools]
    parameters = ", ".join(["void*"] * (len(tensors) + 1 + len(layout.pools)))
    run = templates.RUN_ON_PLATFORM.format(
        declaration=templates.PACKED_RUN.format(**bundle.values),
        call=f"{layout.symbol}({', '.join([*tensors, weights, *pools])})",
        includes=templates.PACKED_HEAD.format(symbol=layout.symbol, parameters=parameters),
        **platform_texts(layout, name),
    )
    return [factory.get_source(), bundle.weights() + run]


def _input_names(factory: AOTExecutorFactoryModule) -> list[str]:
    names = [tensor.name for tensor in factory.layout.inputs]
    plain = [plain_name(name) for name in names]
    for i, name in enumerate(plain):
        if name in plain[:i]:
            raise TVMError(
                f"Sanitized input tensor name clash: the inputs {names[plain.index(name)]!r} and {names[i]!r} are both "
                f"{name} in C; rename one"
            )
    return c_names(names)
