"""Benchmarks of Telegrad against its alternatives, in one process and one run: ``make bench``."""
