"""Devices: array libraries other than NumPy, tensors over their arrays, and ``on``, which selects a device."""

from .device import Device, device, on
from .tensors import DeviceTensor

__all__ = ["Device", "DeviceTensor", "device", "on"]
