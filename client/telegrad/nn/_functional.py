"""The types of ``telegrad.nn.functional`` stand in the stub beside this file, which ``make stubs`` writes."""
