"""The log, as text or as one JSON object per line. Records of a request have its id.

If the log is JSON, so is what a process prints at any log level, such as its address.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress
from typing import Any, Literal, NoReturn

from pythonjsonlogger.json import JsonFormatter

from .request import REQUEST

Form = Literal["text", "json"]
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FIELDS = ("asctime", "levelname", "name", "message", "request_id")
"""The fields of every JSON record. Others are those of the log call, and ``exc_info``."""
NAMES = {"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "error"}
logger = logging.getLogger(__package__.partition(".")[0])
STDOUT, STDERR = 1, 2


class CommandFailed(Exception):
    """An error that ends a command. Its text says why, and what to do."""


class _Text(logging.Formatter):
    """One line per record, with the request's id at its end."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        request_id = getattr(record, "request_id", None)
        return line if request_id is None else f"{line} [{request_id}]"


def add_request_id(record: logging.LogRecord) -> bool:
    """Add the id of the request that this task or thread works for; a filter that keeps every record."""
    if not hasattr(record, "request_id"):
        request = REQUEST.get()
        record.request_id = None if request is None else request.id
    return True


def configure(level: str, form: Form) -> None:
    """Log to standard error from this level on, ours and uvicorn's alike."""
    handler = logging.StreamHandler()
    if form == "json":
        handler.setFormatter(JsonFormatter(FIELDS, rename_fields=NAMES))
        _log_what_python_prints()
    else:
        handler.setFormatter(_Text(TEXT))
    handler.addFilter(add_request_id)
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _log_what_python_prints() -> None:
    """Log warnings and uncaught exceptions, which Python writes to standard error as text."""

    def log(args: Any) -> None:
        logger.error("uncaught exception", exc_info=(args.exc_type, args.exc_value, args.exc_traceback))

    logging.captureWarnings(True)
    sys.excepthook = lambda *error: logger.critical("uncaught exception", exc_info=error)
    threading.excepthook = sys.unraisablehook = log


def _json() -> logging.Formatter | None:
    """The formatter of the log if that is JSON."""
    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    return next((each for each in formatters if isinstance(each, JsonFormatter)), None)


def announce(text: str, descriptor: int = STDOUT) -> None:
    """Write a line for the operator at any log level, unless nobody reads the output any more."""
    if (formatter := _json()) is not None:
        record = logger.makeRecord(logger.name, logging.INFO, "", 0, text, (), None)
        add_request_id(record)
        text = formatter.format(record)
    with suppress(OSError):
        os.write(descriptor, f"{text}\n".encode())


def progress(text: str) -> None:
    """Write what a command is doing to standard error."""
    announce(f"telegrad: {text}", STDERR)


def fail(reason: object) -> NoReturn:
    """End the process with code 1 and this reason."""
    if _json() is None:
        sys.exit(f"telegrad: {reason}")
    logger.critical("%s", reason)
    sys.exit(1)
