"""``make load``: a server under many sessions, floods and hostile requests, with what it took in time and memory.

Small versions of these runs are in ``tests/service/test_load.py``.
"""
