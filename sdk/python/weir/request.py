"""The request of one call."""

from __future__ import annotations

from . import errors
from ._interface import Incoming
from .message import Message, Pairs

_HEX = frozenset(b"0123456789abcdefABCDEF")


class Request(Message):
    """An HTTP request.

    `method` is in capitals; `path` begins with `/`, without the query and not percent-decoded; `params` are those of the
    route, decoded; `query` has the first value of each name, and `query.all(name)` all.

    Errors of the body: 400 `invalid_text`, `invalid_json`, `unreadable_body`; 413 `body_too_large`.
    """

    def __init__(
        self, method: str, target: str, headers: errors.Headers = (), body: Incoming | bytes = b""
    ) -> None:
        """A request; in tests, one that no host sent. `target` is the path, and may have a query."""
        super().__init__(headers, body)
        path, _, query = target.partition("?")
        self.method = method
        self.path = path or "/"
        self.query = Pairs(_pairs(query))
        self.params: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path}>"


def _pairs(query: str) -> list[tuple[str, str]]:
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    return [(unquote(name.replace("+", " ")), unquote(value.replace("+", " "))) for name, _, value in pairs]


def unquote(text: str) -> str:
    """Percent-decodes: a `%` that no two hex digits follow stays; bytes that are not UTF-8 become U+FFFD."""
    first, *rest = text.encode("utf-8", "surrogatepass").split(b"%")
    decoded = bytearray(first)
    for part in rest:
        if len(part) >= 2 and part[0] in _HEX and part[1] in _HEX:
            decoded.append(int(part[:2], 16))
            decoded += part[2:]
        else:
            decoded += b"%" + part
    return decoded.decode("utf-8", "replace")
