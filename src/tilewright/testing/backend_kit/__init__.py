"""Conformance checks of back ends, which a back end's package runs against itself.

A package says what it is, once::

    BACKEND = Backend("npu", device="npu", scopes={"global": 1 << 28, "global.sram": 1 << 20}, compiler="npu", ...)

and runs all that applies to it, in its tests or from the command line::

    @pytest.mark.parametrize("check", backend_kit.checks(BACKEND), ids=str)
    def test_conformance(check):
        check()

    python -m tilewright.testing.backend_kit my_package.kit:BACKEND

`backend`: what a back end says of itself, and what a check is. `devices`: devices, copies, memory scopes, threads.
`partitioning`: what goes to an external compiler, and the library that comes of it. `numerics`: random operators
against their meaning in numpy; `operators` draws them. `faults`: what goes wrong on demand.
"""

from tilewright.testing.backend_kit.backend import Backend, Check, Fault
from tilewright.testing.backend_kit.report import checks, run

__all__ = ["Backend", "Check", "Fault", "checks", "run"]
