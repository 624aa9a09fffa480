"""Benchmarks: times as ratios in one run; counts are asserted in tests/cost instead."""
