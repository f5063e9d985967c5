"""Procedures: programs that a session stores under names, and runs on other tensors."""
