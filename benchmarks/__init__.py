"""Telegrad beside what its users would otherwise run, in one process and one run: ``make bench``."""
