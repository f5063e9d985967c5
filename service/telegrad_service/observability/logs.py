"""The log, as text or as one JSON object per line. Records of a request have its id."""

from __future__ import annotations

import logging
from typing import Literal

from pythonjsonlogger.json import JsonFormatter

from .request import REQUEST

Form = Literal["text", "json"]
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FIELDS = ("asctime", "levelname", "name", "message", "request_id")
"""The fields of a JSON record, besides those that it was logged with and ``exc_info`` for an error."""
NAMES = {"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "error"}


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
    else:
        handler.setFormatter(_Text(TEXT))
    handler.addFilter(add_request_id)
    logging.basicConfig(level=level.upper(), handlers=[handler])
