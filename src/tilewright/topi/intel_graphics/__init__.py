"""TVM's names for Intel GPUs: ``topi.gpu``, whose tiles follow from the target's limits."""

from tilewright.topi.vendors import names_of

__getattr__, __dir__ = names_of(__name__)
