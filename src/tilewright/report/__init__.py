"""Pages that show a compiled model from inside.

``page.py`` writes every page: one HTML file with its style, script and data inside. ``model.py`` gathers what
``compile --report`` and ``bench --report`` show; ``doctor.py``, ``tuning.py`` and ``quantization.py`` are the pages of
those commands. ``trace.py`` writes traces for Perfetto.
"""
