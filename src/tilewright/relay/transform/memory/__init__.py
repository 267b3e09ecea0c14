"""Passes and planners of memory: storage, views, in-place append."""
