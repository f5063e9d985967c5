"""Devices: array libraries other than NumPy, the tensors over their arrays, and ``on`` to compute there."""

from .device import Device, device, on
from .tensors import DeviceTensor

__all__ = ["Device", "DeviceTensor", "device", "on"]
