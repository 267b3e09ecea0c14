"""Computes that only the CPU schedules use: products and attention on packed operands."""
