"""API keys as text: ``tg_``, a public id, ``_``, a random secret, and a checksum.

``tg_0a1B2c3D4e5F_`` is followed by 43 letters and digits of the secret (256 random bits) and 6 of the checksum. The
prefix lets secret scanners recognise a key. The checksum tells a mistyped key from an unknown one without the database.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from typing import NamedTuple

from telegrad_engine.errors import Unauthenticated

PREFIX = "tg_"
DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
ID_LENGTH, SECRET_LENGTH, CHECKSUM_LENGTH = 12, 43, 6
ID_PATTERN = rf"^[0-9A-Za-z]{{{ID_LENGTH}}}$"
_KEY = re.compile(
    rf"(?P<body>{PREFIX}(?P<id>[0-9A-Za-z]{{{ID_LENGTH}}})_[0-9A-Za-z]{{{SECRET_LENGTH}}})"
    rf"(?P<checksum>[0-9A-Za-z]{{{CHECKSUM_LENGTH}}})",
    re.ASCII,
)


class NewKey(NamedTuple):
    """A key that was just made. Only its digest is stored."""

    id: str
    text: str

    def __repr__(self) -> str:
        return f"NewKey(id={self.id!r})"


def new_key() -> NewKey:
    """Make a random key."""
    key_id = _base62(secrets.randbits(71), ID_LENGTH)
    body = f"{PREFIX}{key_id}_{_base62(secrets.randbits(256), SECRET_LENGTH)}"
    return NewKey(key_id, body + _checksum(body))


def id_of(text: str) -> str:
    """Return the public id of a key. Raises Unauthenticated if it is no key, or mistyped."""
    found = _KEY.fullmatch(text)
    if found is None:
        raise Unauthenticated("this is not an API key of Telegrad: one has 65 characters and starts with tg_")
    if _checksum(found["body"]) != found["checksum"]:
        raise Unauthenticated("the API key is mistyped: its checksum does not match")
    return found["id"]


def digest_of(text: str) -> bytes:
    """Return the digest that is stored. A random secret of 256 bits needs no slower one."""
    return hashlib.sha256(text.encode("ascii")).digest()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode("ascii")), CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    """A number in base 62, with leading zeros."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(DIGITS[digit])
    return "".join(reversed(digits))
