"""A target of Tilewright: byte code of a machine with vector registers (see README.md)."""
