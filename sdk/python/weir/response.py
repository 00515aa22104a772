"""What a handler answers with."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import Any

from . import errors
from .aio import run
from .errors import Error

_bytes = bytes

Part = _bytes | str
Parts = Iterable[Part] | AsyncIterable[Part]

TEXT = "text/plain; charset=utf-8"
BINARY = "application/octet-stream"


class Response:
    """An HTTP response: `status` (200 to 599), `headers` (a list of names and values; several of one name are all sent)
    and `body`: bytes, or an iterable of parts, each sent as soon as it is made.

    `content-length` is added to bytes. A status or header that HTTP does not allow is found when the response is sent; the
    caller then gets 500 `invalid_response`.
    """

    def __init__(
        self, status: int = 200, headers: errors.Headers = (), body: _bytes | Parts = b"", content_type: str | None = None
    ) -> None:
        self.status = status
        self.headers = list(headers.items() if isinstance(headers, Mapping) else headers)
        self.body = body
        if content_type is not None and self.header("content-type") is None:
            self.headers.insert(0, ("content-type", content_type))

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: errors.Headers = ()) -> Response:
        """`value` as `application/json`. What JSON cannot hold, such as a NaN: 500 `function_error`."""
        return cls(status, headers, to_json(value).encode(), "application/json")

    @classmethod
    def text(cls, text: str, status: int = 200, headers: errors.Headers = ()) -> Response:
        """`text` as `text/plain; charset=utf-8`."""
        return cls(status, headers, text.encode(), TEXT)

    @classmethod
    def bytes(
        cls, body: _bytes, content_type: str = BINARY, status: int = 200, headers: errors.Headers = ()
    ) -> Response:
        """`body` as the given content type."""
        return cls(status, headers, body, content_type)

    @classmethod
    def stream(
        cls, parts: Parts, content_type: str = BINARY, status: int = 200, headers: errors.Headers = ()
    ) -> Response:
        """Bytes or texts, each sent as soon as it is made. An exception among them ends the answer unfinished, with a line
        in the log."""
        return cls(status, headers, parts, content_type)

    @classmethod
    def events(cls, events: Iterable[Event] | AsyncIterable[Event], headers: errors.Headers = ()) -> Response:
        """Server-sent events, each sent as soon as it is made."""
        return cls(200, headers, (event.encode() for event in _each(events)), "text/event-stream")

    def header(self, name: str) -> str | None:
        """The first header of this name, in any case."""
        folded = name.lower()
        return next((value for other, value in self.headers if other.lower() == folded), None)

    def parts(self) -> Iterator[_bytes]:
        """The body's parts, as they are sent."""
        if isinstance(self.body, _bytes):
            yield self.body
            return
        for part in _each(self.body):
            yield part.encode() if isinstance(part, str) else _bytes(part)

    def needs_content_length(self) -> bool:
        """Whether `content-length` is added: not where HTTP forbids it, nor where the function set it, nor to parts."""
        known = isinstance(self.body, _bytes) and self.status not in (204, 304)
        return known and self.header("content-length") is None

    def __repr__(self) -> str:
        return f"<Response {self.status}>"


class Event:
    """A server-sent event. `data` that is no text is sent as JSON; `retry` is in milliseconds."""

    def __init__(
        self, data: Any, event: str | None = None, id: object = None, retry: int | None = None
    ) -> None:
        self.data, self.event, self.id, self.retry = data, event, id, retry

    def encode(self) -> _bytes:
        """The event as it is sent. Line breaks in `event` or `id`, which would be fields of their own: `ValueError`."""
        lines = []
        for name, value in (("id", self.id), ("event", self.event), ("retry", self.retry)):
            if value is not None:
                text = str(value)
                if "\n" in text or "\r" in text:
                    raise ValueError(f"an event's {name} has a line break")
                lines.append(f"{name}: {text}")
        text = self.data if isinstance(self.data, str) else to_json(self.data)
        lines += [f"data: {line}" for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
        return ("\n".join(lines) + "\n\n").encode()


def to_json(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def response_of(value: Any) -> Response:
    """What a handler gave, as a response: a dict or list is JSON, a str text, bytes themselves, `None` an empty 204, and any
    other iterable a stream. All else: 500 `invalid_response`."""
    if isinstance(value, Response):
        return value
    if value is None:
        return Response(204)
    if isinstance(value, (dict, list)):
        return Response.json(value)
    if isinstance(value, str):
        return Response.text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Response.bytes(_bytes(value))
    if isinstance(value, (Iterable, AsyncIterable)):
        return Response.stream(value)
    raise Error(500, "invalid_response", f"a handler gave a {type(value).__name__}, which is no answer")


def problem(error: Error) -> Response:
    """The problem document (RFC 9457) that the caller reads."""
    document = {
        "type": "about:blank",
        "title": _TITLES.get(error.status, "Client Error" if error.status < 500 else "Server Error"),
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
    }
    return Response(error.status, error.headers, to_json(document).encode(), "application/problem+json")


def _each(items: Iterable[Any] | AsyncIterable[Any]) -> Iterator[Any]:
    """The items one by one; an asynchronous iterable is run."""
    if isinstance(items, AsyncIterable):
        iterator = items.__aiter__()
        while True:
            try:
                yield run(iterator.__anext__())
            except StopAsyncIteration:
                return
    else:
        yield from items


#: The status's name in the HTTP standard, as RFC 9457 wants it beside `about:blank`; of the common ones.
_TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
