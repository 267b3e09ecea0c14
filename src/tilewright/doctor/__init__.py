"""Where a compiled network loses time: each kernel beside what the machine could do, and beside simple alternatives.

``tilewright doctor`` prints what ``diagnose`` finds. ``peak`` measures the machine, ``work`` counts what a kernel does,
``alternatives`` builds the network in other ways.
"""

from tilewright.doctor.diagnosis import Diagnosis, Finding, diagnose

__all__ = ["Diagnosis", "Finding", "diagnose"]
