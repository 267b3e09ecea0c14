"""What all code generators share: the walk over a function's statements (``emitter.py``), and what host code adds, such
as calls by name, checked arguments and parallel launches (``host.py``).
"""
