"""Load what all tests share.

The tiers, the verification of passes and the garbage collector (``tests/tiers.py``), and that other packages' plug-ins
are hidden (``tests/surroundings.py``).
"""

import os

# Threads of PyTorch and of numpy spin while they wait: a small product costs 24 ms of processor time, not 0.4.
# The libraries read this when they are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

pytest_plugins = ["tests.collecting", "tests.surroundings", "tests.tiers"]
