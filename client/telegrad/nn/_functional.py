"""The types of ``telegrad.nn.functional`` are in the stub next to this file, which ``make stubs`` generates."""
