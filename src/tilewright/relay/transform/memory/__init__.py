"""Passes and planners that decide where in memory tensors live."""
