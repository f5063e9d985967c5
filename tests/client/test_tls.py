"""A server behind a proxy that ends TLS, as on the internet, and what the SDK sends masked."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import trustme

import telegrad as tg
from telegrad.websocket import PIECE

from .cutting import Cutter

X = np.arange(PIECE // 2, dtype=np.float32)
"""Twice as many bytes as are masked at a time."""
RECOGNIZED = X[-64:].tobytes()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def proxy(server: str, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cutter]:
    """A proxy whose certificate the SDK trusts."""
    known = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(known))
    monkeypatch.setenv("SSL_CERT_FILE", str(known))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with Cutter(server, context) as proxy:
        yield proxy


def used(session: tg.Session) -> None:
    """Trains a little, and moves more than is masked, or decrypted, at once."""
    w = tg.zeros(3, requires_grad=True)
    for _ in range(3):
        ((w - tg.tensor([1.0, 2.0, 3.0])) ** 2).sum().backward()
        w.data -= 0.25 * w.grad
        w.grad = None
    np.testing.assert_allclose(w.detach().numpy(), [0.875, 1.75, 2.625])
    x = tg.tensor(X)
    np.testing.assert_array_equal((x + 1).numpy(), X + 1)


def test_by_tls_frames_are_masked(proxy: Cutter) -> None:
    with tg.connect(proxy.url, stream=True) as session:
        used(session)
    assert len(proxy.sent) > X.nbytes and RECOGNIZED not in proxy.sent


def test_on_one_machine_too(server: str) -> None:
    with Cutter(server) as between, tg.connect(between.url, stream=True) as session:
        used(session)
        assert len(between.sent) > X.nbytes and RECOGNIZED not in between.sent


def test_a_certificate_that_nobody_vouches_for(server: str, authority: trustme.CA) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with Cutter(server, context) as proxy, pytest.raises(ConnectionError, match="certificate verify failed"):
        tg.connect(proxy.url)


def test_one_for_somebody_else(proxy: Cutter) -> None:
    with pytest.raises(ConnectionError, match="certificate is not valid for 'localhost'"):
        tg.connect(proxy.url.replace("127.0.0.1", "localhost"))
