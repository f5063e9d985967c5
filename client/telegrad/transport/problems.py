"""Problem documents as the exceptions that they tell of."""

from __future__ import annotations

import json

from telegrad_engine import errors

PREFIX = "urn:telegrad:problem:"


def not_telegrad(url: str, reason: str) -> errors.ConnectionFailed:
    """The error for an answer that does not come from a server of ours."""
    return errors.ConnectionFailed(f"{url} does not answer as a Telegrad server: {reason}")


def problem_to_error(url: str, status: int, body: bytes | memoryview) -> errors.TelegradError:
    """The exception that local code would have raised, from a problem+json answer."""
    try:
        problem = json.loads(bytes(body))
        slug = str(problem.pop("type")).removeprefix(PREFIX)
        detail = str(problem.pop("detail"))
    except (ValueError, KeyError, AttributeError):
        return not_telegrad(url, f"its answer {status} is not a problem document")
    context = {k: v for k, v in problem.items() if k not in ("title", "status", "instance", "sequence")}
    return errors.from_slug(slug, detail, context)
