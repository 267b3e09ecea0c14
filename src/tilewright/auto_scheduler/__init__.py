"""The auto-scheduler."""
