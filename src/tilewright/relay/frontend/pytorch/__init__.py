"""Models in TorchScript: ``from_pytorch``, with the arguments of TVM 0.8's.

The graph is run in Python on tensors of torch (``evaluator.py``) while ``torch.export`` traces that; the exported
program goes the way of all exported programs. So there is one table of operators for both, and torch itself decides
types, broadcasting and what is written in place.

importer.py   from_pytorch           inputs.py      input_infos        mirror.py    the module's parameters, by name
evaluator.py  runs a graph           values.py      what is known while tracing
control.py    branches and loops     python_ops.py  numbers, lists, strings; questions about tensors
custom.py     operators that the caller converts                 quantized.py quantized tensors and operators

torch itself is imported when somebody gives a module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.runtime.ndarray import NDArray


def from_pytorch(
    script_module: Any,
    input_infos: Sequence[Any],
    custom_convert_map: Mapping[str, Callable[[list[Any], list[str]], Any]] | None = None,
    default_dtype: str = "float32",
    use_parser_friendly_name: bool = False,
    keep_quantized_weight: bool = False,
) -> tuple[IRModule, dict[str, NDArray]]:
    """Import a module or function of TorchScript, as TVM 0.8 does.

    Args:
        script_module: what ``torch.jit.trace``, ``torch.jit.script`` or ``torch.jit.load`` gave.
        input_infos: for each input its name and shape, or its name, and its shape and data type: ``[("x", (1, 3)),
            ("n", ((2,), "int64"))]``. A dimension may be ``relay.Any()``; the shape of a tuple or list of tensors is
            a tuple or list of shapes. Tracing records data types, and these hold.
        custom_convert_map: functions for operators by name, such as ``"torchvision::roi_align"``. Each gets the
            operands, tensors as Relay expressions, and their data types; it returns the result.
        default_dtype: the data type of inputs for which neither the module nor ``input_infos`` has one.
        use_parser_friendly_name: whether names of parameters have "_" in place of ".".
        keep_quantized_weight: of TVM 0.8; weights of quantized modules are int8 either way.

    Returns:
        The module: inputs first, as ``input_infos`` names them, then parameters by their names in the ``state_dict``;
        tuples nest as in what the module returns. The parameters' arrays by name.

    Raises:
        TilewrightError: ``input_infos`` does not fit, or the module cannot be traced.
        UnsupportedError: naming every operator without a converter.
    """
    from tilewright.relay.frontend.pytorch.importer import import_script

    return import_script(
        script_module,
        input_infos,
        custom_convert_map or {},
        default_dtype,
        use_parser_friendly_name,
        keep_quantized_weight,
    )


__all__ = ["from_pytorch"]
