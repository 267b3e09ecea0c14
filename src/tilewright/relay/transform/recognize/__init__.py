"""Passes that find operators spelled out in smaller ones."""
