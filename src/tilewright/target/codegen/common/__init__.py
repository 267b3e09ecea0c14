"""Common parts of the code generators: the walk over statements (``emitter.py``) and host code (``host.py``)."""
