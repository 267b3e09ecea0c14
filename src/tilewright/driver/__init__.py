"""The command line: ``tilewright compile | run | bench | show``."""
