"""Benchmarks: `python -m tests.bench` prints every figure as a ratio to a baseline measured in the same run."""
