"""Reports of the programs that run planned or compiled, and why others do not."""
