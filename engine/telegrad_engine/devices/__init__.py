"""Where tensors live: a backend other than NumPy, the class of the tensors over its arrays, and ``on`` to be there."""

from .device import Device, device, on
from .tensors import DeviceTensor

__all__ = ["Device", "DeviceTensor", "device", "on"]
