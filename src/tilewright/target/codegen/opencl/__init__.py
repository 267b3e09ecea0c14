"""The code generator of the kind ``opencl``: OpenCL C 1.2, a dialect of ``codegen/source``.

``kernel.py``: one kernel as text. ``vectors.py``: vectors of OpenCL C. ``helpers.py``: functions that the text needs.
``generator.py``: the module of all kernels of a target.
"""
