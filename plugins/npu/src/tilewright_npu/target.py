"""The target kind "npu": ``Target("npu -sram=BYTES -ddr=BYTES")``; the entry point calls ``register``."""

from __future__ import annotations

from tilewright import runtime
from tilewright.target import Target, register_target_kind
from tilewright_npu.isa import DDR_BYTES, SRAM_BYTES


def register() -> None:
    """Make ``Target("npu")`` known, what builds for it, and its strategies."""
    from tilewright_npu.kernels import codegen, dense

    runtime.register_func("target.build.npu", codegen.build, override=True)
    dense.register()
    register_target_kind(
        "npu",
        options={"sram": int, "ddr": int},
        defaults={"sram": SRAM_BYTES, "ddr": DDR_BYTES},
        device="npu",
        override=True,
    )


def memories(target: Target | str) -> tuple[int, int]:
    """Bytes of SRAM and DDR that code for a target may use.

    Raises:
        ValueError: they are none that the chip has.
    """
    chosen = Target(target)
    sram, ddr = int(chosen.attrs["sram"]), int(chosen.attrs["ddr"])
    if not 1 << 14 <= sram <= SRAM_BYTES or not 0 < ddr <= DDR_BYTES:
        raise ValueError(
            f"{chosen}: the chip has {SRAM_BYTES} bytes of SRAM and {DDR_BYTES} of DDR; -sram takes 16384 up to that, "
            "-ddr up to that"
        )
    return sram, ddr
