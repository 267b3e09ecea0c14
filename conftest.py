"""Load what all tests share: the tiers, the verification of passes and the garbage collector (``tests/tiers.py``)."""

pytest_plugins = ["tests.tiers"]
