"""The simulation of clusters, which ``make test-scale`` runs."""
