"""Boards that the compiler knows: their memory, and how QEMU emulates some of them.

The names are those of ``tvm.target.micro``, and stand as ``-model`` in targets. Sizes are the makers': of a family of
chips, those of its smallest common one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.runtime.error import TVMError
from tilewright.target.target import Target, micro

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Emulation:
    """How QEMU emulates a board, and how programs for it are built.

    Attributes
    ----------
    command : QEMU's program and options that choose the board
    compiler : the prefix of the names of the compiler and its tools
    flags : options of the compiler
    start_up : the file of start-up code
    flash_at, ram_at : addresses of the two memories
    uart_at : address of the first serial line
    clock_hz : what the processor's timer counts by
    has_libc : whether the compiler comes with a C library; ``string.h`` of this folder serves where it does not
    """

    command: tuple[str, ...]
    compiler: str
    flags: tuple[str, ...]
    start_up: str
    flash_at: int
    ram_at: int
    uart_at: int = 0
    clock_hz: int = 0
    has_libc: bool = True


@dataclass(frozen=True)
class Board:
    """A board: bytes of its memories for code and for data, and how it is emulated, if it is."""

    name: str
    flash: int
    ram: int
    emulation: Emulation | None = None

    @property
    def target(self) -> Target:
        """Return its target, for ahead-of-time programs."""
        return micro(self.name, "-executor=aot")


def _mps2(machine: str, cpu: str, fpu: str) -> Emulation:
    return _mps(machine, cpu, fpu, 0, 0x2000_0000, 0x4000_4000, 25_000_000)


def _mps(machine: str, cpu: str, fpu: str, flash_at: int, ram_at: int, uart_at: int, clock_hz: int) -> Emulation:
    flags = (f"-mcpu={cpu}", "-mthumb", "-mfloat-abi=hard", *([f"-mfpu={fpu}"] if fpu else []))
    command, start_up = ("qemu-system-arm", "-M", machine), "cortex_m.c"
    return Emulation(command, "arm-none-eabi-", flags, start_up, flash_at, ram_at, uart_at, clock_hz)


_VIRT = Emulation(
    ("qemu-system-riscv32", "-M", "virt", "-bios", "none", "-m", "32M"), "riscv64-unknown-elf-",
    ("-march=rv32imc", "-misa-spec=2.2", "-mabi=ilp32"), "riscv32.c", 0x8000_0000, 0x8100_0000, has_libc=False,
)  # fmt: skip

_AN547 = _mps("mps3-an547", "cortex-m55", "", 0x1000_0000, 0x3000_0000, 0x5930_3000, 32_000_000)

_BOARDS = (
    Board("atsamd51", 512 * KIB, 192 * KIB),
    Board("cxd5602gg", 8 * MIB, 1536 * KIB),
    Board("esp32", 4 * MIB, 520 * KIB),
    Board("imxrt10xx", 8 * MIB, 512 * KIB),
    Board("mps2_an386", 4 * MIB, 4 * MIB, _mps2("mps2-an386", "cortex-m4", "fpv4-sp-d16")),
    Board("mps2_an500", 4 * MIB, 4 * MIB, _mps2("mps2-an500", "cortex-m7", "fpv5-sp-d16")),
    Board("mps2_an521", 4 * MIB, 4 * MIB),
    Board("mps3_an547", 512 * KIB, 512 * KIB, _AN547),
    Board("nrf52840", 1 * MIB, 256 * KIB),
    Board("nrf5340dk", 1 * MIB, 512 * KIB),
    Board("qemu_riscv32", 16 * MIB, 16 * MIB, _VIRT),
    Board("sam3x8e", 512 * KIB, 96 * KIB),
    Board("stm32f746xx", 1 * MIB, 320 * KIB),
    Board("stm32l4r5zi", 2 * MIB, 640 * KIB),
)
BOARDS = {board.name: board for board in _BOARDS}


def board_named(name: str) -> Board:
    """Return a board; hyphens are as good as underscores.

    Raises
    ------
    TVMError : there is none of that name
    """
    if (found := BOARDS.get(name.replace("-", "_"))) is None:
        raise TVMError(f"there is no board {name!r}; known are {', '.join(BOARDS)}")
    return found
