"""Tenants: principals and API keys, authentication, quotas."""
