"""Passes that give parts of a program to external compilers."""
