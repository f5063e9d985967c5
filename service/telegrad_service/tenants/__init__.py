"""Tenants: who makes a request, and what it may use."""
