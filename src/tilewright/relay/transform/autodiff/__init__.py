"""Automatic differentiation."""
