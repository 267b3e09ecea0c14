"""Programs of the system that some tests run."""

from __future__ import annotations

import os
import shutil

import pytest

PACKAGES = {
    "qemu-aarch64": "qemu-user",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "qemu-arm": "qemu-user",
    "arm-linux-gnueabihf-gcc": "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross",
    "qemu-riscv64": "qemu-user",
    "riscv64-linux-gnu-gcc": "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross",
    "qemu-system-arm": "qemu-system-arm",
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "qemu-system-riscv32": "qemu-system-misc",
    "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf",
    "ip": "iproute2",
    "valgrind": "valgrind",
}


def need(*tools: str) -> None:
    """Skip the test where one of ``tools`` is not installed; under continuous integration (``CI`` is set), fail."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if not missing:
        return
    packages = " ".join(PACKAGES[tool] for tool in missing)
    message = f"{' and '.join(missing)} not installed: make system-packages, or on Debian apt install {packages}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
