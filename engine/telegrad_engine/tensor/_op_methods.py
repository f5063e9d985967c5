"""The methods that ops declare. Their types are in a stub next to this file, which :mod:`..stubs` generates."""


class OpMethods:
    """A method for every op. :func:`.methods.install_methods` adds them to :class:`.methods.TensorMethods`."""
