"""Declarations of ops: parameters, signature, kernel and derivative.

All properties of an op are derived from one declaration (:mod:`.op`).
"""
