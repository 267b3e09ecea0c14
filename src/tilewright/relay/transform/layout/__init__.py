"""Passes that choose the layouts, ranks and extents in which operators are computed."""
