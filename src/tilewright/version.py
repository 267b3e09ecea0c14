"""The version, which libraries carry."""

__version__ = "0.1.0"
