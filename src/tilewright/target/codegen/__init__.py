"""Code generators: ``llvm`` (LLVM IR text) and ``c`` (C source), from TIR functions whose calls are lowered."""
