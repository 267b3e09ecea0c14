"""Passes that partition programs for external compilers."""
