"""The console in a real browser, against real servers. ``make test-console`` runs these."""
