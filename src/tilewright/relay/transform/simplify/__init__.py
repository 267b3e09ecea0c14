"""Passes that make a program smaller or cheaper by algebra, and compute at compile time what they can."""
