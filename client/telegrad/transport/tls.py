"""The SSL context of a session, which its WebSocket and its requests share."""

from __future__ import annotations

import os
import ssl

import httpx

from telegrad_engine.errors import InvalidArgument, InvalidValue

Verify = ssl.SSLContext | str | os.PathLike[str] | bool


def ssl_context(verify: Verify = True) -> ssl.SSLContext:
    """The context for a way to verify servers: True for the system's certificates, the path of a PEM file with
    others, a context, or False for no verification.

    Where the system has none, certifi's are used. Raises InvalidValue for a path without certificates, InvalidArgument
    for anything else.
    """
    if isinstance(verify, ssl.SSLContext):
        return verify
    if isinstance(verify, bool):
        return _system_context() if verify else _unverified_context()
    if not isinstance(verify, (str, os.PathLike)):
        raise InvalidArgument(f"verify is an SSLContext, a path or a bool, not {type(verify).__name__}")
    try:
        return ssl.create_default_context(cafile=verify)
    except OSError as error:
        raise InvalidValue(f"verify={os.fspath(verify)!r}: no certificates can be read there: {error}") from None


def _system_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    found = context.cert_store_stats()["x509_ca"] or paths.cafile or paths.capath
    return context if found else httpx.create_ssl_context()


def _unverified_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
