"""TVM's names for high-level synthesis: loops as declared, which HLS compilers pipeline themselves."""

from tilewright.topi.vendors import names_of

__getattr__, __dir__ = names_of(__name__)
