"""What this back end is, for ``python -m tilewright.testing.backend_kit tilewright_npu.kit``."""

from tilewright.testing.backend_kit import Backend
from tilewright_npu import chip, isa

BACKEND = Backend(
    "npu",
    device="npu",
    scopes={"global": isa.DDR_BYTES, "global.sram": isa.SRAM_BYTES},
    held=lambda: bytes(chip.held()),
)
