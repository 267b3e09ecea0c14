"""Records of processors: measurements of each family, by which schedules choose.

``record`` defines the fields, each with its unit and where it was measured; ``families`` has the records
and the processors, by LLVM's names, that they are for. ``CpuFeatures.processor`` is the record of a target.
"""

from tilewright.target.processors.families import DEFAULT, processor_of
from tilewright.target.processors.record import Caches, Memory, Processor

__all__ = ["DEFAULT", "Caches", "Memory", "Processor", "processor_of"]
