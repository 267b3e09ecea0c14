"""Conformance checks of back ends, which a back end's package runs against itself.

A package says what it is, once::

    BACKEND = Backend("npu", device="npu", scopes={"global": 1 << 28, "global.sram": 1 << 20}, compiler="npu", ...)

and runs all that applies to it, in its tests or from the command line::

    @pytest.mark.parametrize("check", backend_kit.checks(BACKEND), ids=str)
    def test_conformance(check):
        check()

    python -m tilewright.testing.backend_kit my_package.kit:BACKEND

`backend`: declarations of back ends, and checks. `devices`: devices, copies, memory scopes, threads.
`partitioning`: partitions for an external compiler, and the library built from them. `numerics`: random operators
against their meaning in numpy; `operators` draws them. `faults`: injected faults.
"""

from tilewright.testing.backend_kit.backend import Backend, Check, Fault
from tilewright.testing.backend_kit.report import checks, run

__all__ = ["Backend", "Check", "Fault", "checks", "run"]
