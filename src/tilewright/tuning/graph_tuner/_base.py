"""Constants of the graph tuner."""

INVALID_LAYOUT_TIME = 10e9
"""Seconds that stand for a conversion that cannot be made."""

OPT_OUT_OP = ["layout_transform"]
"""Operators that are no reason for their readers to have several inputs."""
