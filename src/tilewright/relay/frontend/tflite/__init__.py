"""TensorFlow Lite import: one converter for each operator, grouped by family.

flatbuffer.py  reads a file, every offset checked    schema.py    its tables, numbers of operators and types
model.py       tensors, operators, subgraphs         sparsity.py  sparse constants as dense ones
importer.py    walks a graph                         context.py   the interface of converters
registry.py    converters by name                    integers.py  sums and products of quantized tensors
fixed_point.py sigmoid and tanh in 16 bits  integer_norm.py  layer normalization in 32 bits
integer_recurrent.py  recurrent cells of integers
elementwise.py conv.py hybrid.py images.py shape.py reduce.py indexing.py recurrent.py control.py detection.py
variables.py   resource variables                    flexbuffer.py  options of custom operators
"""

from tilewright.relay.frontend.tflite import (
    control,
    conv,
    detection,
    elementwise,
    images,
    indexing,
    recurrent,
    reduce,
    shape,
    variables,
)
from tilewright.relay.frontend.tflite.flatbuffer import TfliteImportError
from tilewright.relay.frontend.tflite.importer import OperatorConverter, from_tflite, load

__all__ = [
    "OperatorConverter", "TfliteImportError", "control", "conv", "detection", "elementwise", "from_tflite", "images",
    "indexing", "load", "recurrent", "reduce", "shape", "variables",
]  # fmt: skip
