"""Passes over the functional language: normal forms, closures, inlining, dead code."""
