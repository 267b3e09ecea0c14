"""TVM's CUDA names for ``topi.gpu``, whose schedules serve every graphics processor.

Most of TVM's schedules map to one of ours, which takes any graph of computes.
"""

from tilewright.topi.vendors import names_of

__getattr__, __dir__ = names_of(__name__)
