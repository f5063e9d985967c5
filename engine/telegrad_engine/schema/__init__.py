"""Declarations of ops: parameters, signature, kernel, derivative, and the calls that tests make.

Everything that there is to know of an op is derived from one declaration (:mod:`.op`).
"""
