"""The values of other libraries' tensors, without importing those libraries."""

from __future__ import annotations

from typing import Any

import ml_dtypes


def host_array(tensor: Any) -> Any:
    """The values of a tensor, ours or another library's, as a NumPy array; NumPy's own lack bfloat16."""
    host = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16" and not hasattr(tensor, "_recorder"):
        # As bits: of a dtype of the same library, which is had from a tensor.
        bits = host.view(host.new_empty(0).short().dtype)
        return bits.numpy().view(ml_dtypes.bfloat16)
    return host.numpy()
