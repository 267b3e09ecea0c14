"""The version, which libraries carry too."""

__version__ = "0.1.0"
