"""The types of telegrad's functions are in the stub next to this file, which ``make stubs`` generates."""
