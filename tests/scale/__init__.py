"""The pages of the documentation: every block of code on them is run."""
