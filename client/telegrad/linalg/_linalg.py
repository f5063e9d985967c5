"""The types of ``telegrad.linalg`` stand in the stub beside this file, which ``make stubs`` writes."""
