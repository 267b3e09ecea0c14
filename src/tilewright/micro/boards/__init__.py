"""Boards: records of their memory, and what a program on an emulated one needs beside its own code.

``board.h`` is what programs call; ``cortex_m.c`` and ``riscv32.c`` implement it for a kind of processor.
"""
