"""The functions of ``telegrad.nn.functional`` that ops have. Their types are in a generated stub next to this file."""
