"""Where tensors live: a backend other than NumPy, the class of the tensors over its arrays, and ``on`` to be there."""

from .device import ENGINE, Device, DeviceTensor, device, on

__all__ = ["ENGINE", "Device", "DeviceTensor", "device", "on"]
