"""Load what all tests share.

The tiers, the verification of passes and the garbage collector (``tests/tiers.py``), and that other packages' plug-ins
are hidden (``tests/surroundings.py``).
"""

pytest_plugins = ["tests.surroundings", "tests.tiers"]
