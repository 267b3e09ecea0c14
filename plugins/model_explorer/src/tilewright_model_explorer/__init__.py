"""An adapter of Google's Model Explorer for Tilewright's files; ``main.py`` is where Model Explorer finds it."""
