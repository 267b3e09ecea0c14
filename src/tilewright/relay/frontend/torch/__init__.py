"""PyTorch: programs of torch.export, one converter for each of ATen's operators, grouped by family.

exported.py        programs, modules and .pt2 files; their signature binds parameters
graph.py           walks FX graphs (``function_of``, ``GraphImporter``)       scalars.py   numbers of Python
context.py         the interface of converters      registry.py   converters by ATen's names
symbols.py         symbolic sizes as named dimensions                         dtypes.py    types and their promotion
decompositions.py  what torch breaks up first                                 logs.py      what torch logs beside errors
elementwise.py linear.py conv.py pooling.py reduce.py normalization.py shape.py creation.py indexing.py sorting.py
attention.py recurrent.py resize.py vision.py quantization.py control.py sizes.py gradients.py norm_gradients.py
experts.py strides.py complex_numbers.py; converters.py imports them all

torch itself is imported with the modules of this package other than this one, when somebody gives a program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ir.module import IRModule
from tilewright.runtime.ndarray import NDArray

if TYPE_CHECKING:
    import torch


def from_exported_program(
    program: torch.export.ExportedProgram | torch.nn.Module | str | os.PathLike[str],
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    dims: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, NDArray]]:
    """Import a program of torch.export.

    Args:
        program: an ``ExportedProgram``, the path of one that ``torch.export.save`` wrote, or a module to export.
        example_inputs: of a module: a tensor, a tuple of the arguments, or a mapping of them by name.
        dynamic_shapes: of a module: dimensions that are known at run time only, as ``torch.export.export`` takes them.
        dims: limits of named dimensions, within those of the program: a number, ``(least, largest)`` or
            ``(least, largest, multiple)``.

    Returns:
        The module, whose attribute ``output_names`` has the names of the program's outputs; and the parameters by name.
        Inputs have the names of the program's placeholders: those of the arguments of ``forward``. A buffer that the
        program writes is an input, listed in the module's attribute ``state_inputs``, and its next value a result of
        its name with ``.next`` behind; the buffer's value is among the parameters.

    Raises:
        UnsupportedError: naming every operator without a converter, with its places in the Python source.
        TorchImportError: the program is not valid, a module is in training mode, or a tensor is not on the CPU.
    """
    from tilewright.relay.frontend.torch.exported import import_program

    return import_program(program, example_inputs, dynamic_shapes, dims)


__all__ = ["from_exported_program"]
