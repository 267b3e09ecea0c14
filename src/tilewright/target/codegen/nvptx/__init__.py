"""The code generators of the kinds ``cuda`` and ``nvptx``: PTX by LLVM's NVPTX back end, on the emitter of LLVM IR.

``architecture.py``: what ``-arch`` names. ``kernel.py``: one kernel as LLVM IR. ``math.py``, ``float64.py`` and
``reduction.py``: mathematics, so that nothing of the CUDA toolkit is needed. ``matrices.py``: tensor cores.
``generator.py``: the module of all kernels.
"""
