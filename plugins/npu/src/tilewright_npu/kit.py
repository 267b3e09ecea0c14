"""What this back end is, for ``python -m tilewright.testing.backend_kit tilewright_npu.kit``."""

from tilewright.testing.backend_kit import Backend, Fault
from tilewright_npu import chip, isa
from tilewright_npu.patterns import partition_for_npu


def _fault(name: str, fault: chip.Fault, when: int, message: str) -> Fault:
    """What the driver is told to do wrong; a reset ends it."""
    return Fault(name, lambda: chip.inject(0, fault, when), lambda: chip.reset(0), message)


def _hang() -> None:
    chip.set_timeout(0, 200)
    chip.inject(0, chip.Fault.HANG)


def _end_hang() -> None:
    chip.set_timeout(0)
    chip.reset(0)


BACKEND = Backend(
    "npu",
    device="npu",
    scopes={"global": isa.DDR_BYTES, "global.sram": isa.SRAM_BYTES},
    compiler="npu",
    prepare=partition_for_npu,
    faults=(
        _fault("gone", chip.Fault.GONE, 3, "NPU 0 is gone"),
        _fault("busy", chip.Fault.BUSY, 1, "NPU 0 is busy: try again"),
        _fault("corrupt_command", chip.Fault.FLIP, 2, r"command 2 \(\w+\): the engine \w+ has no opcode"),
        Fault("hanging_launch", _hang, _end_hang, "NPU 0: time-out after 200 ms; the work was cancelled"),
    ),
    held=lambda: repr(chip.held()),
)
