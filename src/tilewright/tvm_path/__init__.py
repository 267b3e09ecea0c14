"""A folder for ``sys.path`` that has a ``tvm``: ``tilewright.tvm`` hands it to the processes that a script starts."""
