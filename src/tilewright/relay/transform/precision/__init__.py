"""Passes that choose the data types in which operators compute."""
