"""Passes that recognize operators written in basic ones."""
