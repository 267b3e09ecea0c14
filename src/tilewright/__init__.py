"""Tilewright: a deep-learning compiler. A model file goes in, a small library that runs it comes out."""
