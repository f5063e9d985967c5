"""The methods that ops declare. Their types stand in the stub beside this file, which ``make stubs`` writes."""


class OpMethods:
    """A method for every op. They are entered into :class:`.methods.TensorMethods` once the ops are declared."""
