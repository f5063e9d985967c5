"""Drawing the graph of a session."""

from __future__ import annotations

from collections.abc import Sequence

from telegrad_engine.program import json_codec
from telegrad_engine.session.session import Session
from telegrad_engine.visualization import drawing

from ..http.media import JSON

DOT = "text/vnd.graphviz"
MERMAID = "text/vnd.mermaid"
FORMATS = {"json": JSON, "dot": DOT, "mermaid": MERMAID}


def drawn(session: Session, roots: Sequence[str], media_type: str) -> bytes:
    """The history of the roots, or of all tensors that have one."""
    tensors = [session.get(name) for name in roots]
    if not roots:
        tensors = [tensor for tensor in session.tensors.values() if tensor.grad_fn is not None]
    found = drawing.draw(tensors, session.tensors)
    if media_type == DOT:
        return drawing.to_dot(found).encode()
    if media_type == MERMAID:
        return drawing.to_mermaid(found).encode()
    return json_codec.dumps(drawing.to_json(found))
