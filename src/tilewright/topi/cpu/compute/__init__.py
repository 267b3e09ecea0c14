"""Computes that only the schedules for CPUs want: products and attention on packed operands."""
