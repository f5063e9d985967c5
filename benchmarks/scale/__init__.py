"""A simulation of a cluster with 1 to 10,000 workers, whose parameters are measured on one machine."""
