"""Keeping a graph well: proving it sound, and the operations that tidy it."""
