"""The functions of ``telegrad.linalg``. Their types are in a generated stub next to this file."""
