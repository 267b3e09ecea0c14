"""Pages that show a compiled model from inside.

``page.py`` writes every page: one HTML file with its style, script and data inside. ``model.py`` gathers what
``compile --report`` and ``bench --report`` show; ``doctor.py``, ``tuning.py`` and ``quantization.py`` are the pages of
those commands. ``code.py``, ``memory.py`` and ``passes.py`` are parts of pages: kernels with their code, the memory of
a graph over time, and what passes changed. ``trace.py`` writes traces for Perfetto.
"""
