"""Log lines: one line per call, level first, which the host keeps as the function's log.

Line breaks in the text become `\\n`, so that no caller can forge a line.
"""

from __future__ import annotations

from ._interface import current


def debug(text: object) -> None:
    """Logs at level `DEBUG`."""
    _line("DEBUG", text)


def info(text: object) -> None:
    """Logs at level `INFO`."""
    _line("INFO", text)


def warn(text: object) -> None:
    """Logs at level `WARN`."""
    _line("WARN", text)


def error(text: object) -> None:
    """Logs at level `ERROR`."""
    _line("ERROR", text)


def _line(level: str, text: object) -> None:
    line = str(text).replace("\r", "\\r").replace("\n", "\\n")
    current().log(f"{level} {line}\n")
