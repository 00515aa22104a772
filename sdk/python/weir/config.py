"""The function's own configuration."""

from __future__ import annotations

from ._interface import current
from .errors import Error


def config(name: str, default: str | None = None) -> str:
    """The value of `name` in the function's configuration (its `env`), or `default`.

    Neither there: status 500, code `missing_config`.
    """
    value = current().config(name)
    if value is None:
        value = default
    if value is None:
        raise Error(500, "missing_config", f"the function's `env` has no value `{name}`")
    return value
