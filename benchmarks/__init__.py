"""Benchmarks with a command: ``python -m benchmarks --out results.json``."""
