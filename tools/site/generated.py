"""The pages that are made from the code, by their path on the site."""

from __future__ import annotations

from .coverage_page import coverage_page
from .op_pages import op_pages
from .optimizer_page import optimizer_page
from .rest_pages import rest_pages
from .sdk_pages import sdk_pages
from .server_pages import errors_page, settings_page


def generated_pages() -> dict[str, str]:
    """All pages that are made from the code."""
    return {
        **op_pages(),
        **rest_pages(),
        **sdk_pages(),
        "reference/optimizers.md": optimizer_page(),
        "reference/settings.md": settings_page(),
        "reference/errors.md": errors_page(),
        "explanation/coverage.md": coverage_page(),
    }
