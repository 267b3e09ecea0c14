"""Passes that simplify programs by algebra and evaluate constant parts at compile time."""
