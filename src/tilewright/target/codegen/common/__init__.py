"""Common parts of the code generators: the walk over statements (``emitter.py``) and host code (``host.py``).

``argument_check.py``: checks of arguments and indices; ``index.py``: analysis of indices; ``names.py``: unique names.
"""
