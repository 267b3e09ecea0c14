"""TIR to C source."""
