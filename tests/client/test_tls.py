"""A server behind a proxy that terminates TLS, and the masking of the SDK's frames.

Internals: the size of a piece of a frame is no setting.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import trustme

import telegrad as tg
from telegrad.transport.websocket import PIECE

from .cutting import Cutter

X = np.arange(PIECE // 2, dtype=np.float32)
"""An array of twice as many bytes as are masked at a time."""
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


@pytest.fixture
def unknown(server: str, authority: trustme.CA) -> Iterator[Cutter]:
    """A proxy whose certificate the SDK cannot verify."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with Cutter(server, context) as proxy:
        yield proxy


def used(session: tg.Session) -> None:
    """Train a little, and transfer more data than is masked or decrypted at a time."""
    w = tg.zeros(3, requires_grad=True)
    for _ in range(3):
        ((w - tg.tensor([1.0, 2.0, 3.0])) ** 2).sum().backward()
        w.data -= 0.25 * w.grad  # type: ignore[operator]
        w.grad = None
    np.testing.assert_allclose(w.detach().numpy(), [0.875, 1.75, 2.625])
    x = tg.tensor(X)
    np.testing.assert_array_equal((x + 1).numpy(), X + 1)


def test_by_tls_frames_are_masked(proxy: Cutter) -> None:
    with tg.connect(proxy.url, stream=True) as session:
        used(session)
    assert len(proxy.sent) > X.nbytes and RECOGNIZED not in proxy.sent


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", ["file", "path", "context", "unverified"])
def test_an_authority_of_ones_own(
    unknown: Cutter, authority: trustme.CA, tmp_path: Path, kind: str, stream: bool
) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    known = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(known))
    verify = {"file": str(known), "path": known, "context": context, "unverified": False}[kind]
    with tg.connect(unknown.url, stream=stream, verify=verify) as session:
        used(session)
        with session.another() as other:
            assert other.id != session.id and tg.ones(2).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("stream", [True, False, None])
def test_a_certificate_that_nobody_vouches_for(unknown: Cutter, tmp_path: Path, stream: bool | None) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    for verify in (True, other):
        with pytest.raises(ConnectionError, match="certificate verify failed"):
            tg.connect(unknown.url, stream=stream, verify=verify)


def test_what_is_no_authority(server: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for path in (str(empty), tmp_path / "missing.pem"):
        with pytest.raises(ValueError, match=r"no certificates can be read there"):
            tg.connect(server, verify=path)
    with pytest.raises(TypeError, match="verify is an SSLContext, a path or a bool, not int"):
        tg.connect(server, verify=1)


def test_one_for_somebody_else(proxy: Cutter) -> None:
    with pytest.raises(ConnectionError, match="certificate is not valid for 'localhost'"):
        tg.connect(proxy.url.replace("127.0.0.1", "localhost"))
