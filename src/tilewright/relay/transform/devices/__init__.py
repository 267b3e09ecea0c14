"""Passes that decide on which device each part of a program runs."""
