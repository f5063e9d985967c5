"""The methods that ops declare. Their types are in the stub next to this file, which ``make stubs`` generates."""


class OpMethods:
    """A method for every op. :func:`.methods.install_methods` adds them to :class:`.methods.TensorMethods`."""
