"""Requests of the function's own, to the hosts that its deployment allows (`egress`), by `http` or `https`.

Whatever keeps a request from being answered is 502 `fetch_failed`; an answer is an answer, whatever its status.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, NoReturn

from . import errors
from ._interface import Answer, FetchFailure, Incoming, Outgoing, current
from .errors import Error
from .message import Message
from .response import to_json


class Fetched(Message):
    """What an upstream answered: `status`, `headers`, and a body that is read when it is asked for.

    Errors of the body: 502 `fetch_failed`.
    """

    def __init__(
        self, status: int, headers: errors.Headers = (), body: Incoming | bytes = b"", request: str = "fetch"
    ) -> None:
        super().__init__(headers, body)
        self.status = status
        self._request = request

    def ok(self) -> Fetched:
        """The answer itself, or 502 `fetch_failed` where its status is 400 or more."""
        if self.status >= 400:
            raise _failed(self._request, f"answered {self.status}")
        return self

    def _not(self, what: str, why: str) -> NoReturn:
        raise _failed(self._request, why)

    def __repr__(self) -> str:
        return f"<Fetched {self.status} of {self._request}>"


class Fetching:
    """A request that was sent. `await` it, or `wait` for it."""

    def __init__(self, answer: Answer, request: str) -> None:
        self._answer = answer
        self._request = request

    def wait(self) -> Fetched:
        """The head of the answer, once it is there."""
        while (fetched := self._take()) is None:
            current().wait([self._answer.waitable])
        return fetched

    def __await__(self) -> Generator[Any, Any, Fetched]:
        while (fetched := self._take()) is None:
            yield (self._answer.waitable,)
        return fetched

    def _take(self) -> Fetched | None:
        try:
            got = self._answer.get()
        except FetchFailure as failure:
            raise _failed(self._request, str(failure)) from None
        return None if got is None else Fetched(*got, request=self._request)


def start(
    url: str,
    *,
    method: str | None = None,
    headers: errors.Headers = (),
    body: bytes | str | Iterable[bytes | str] | None = None,
    json: Any = None,
    timeout: float | None = None,
) -> Fetching:
    """Sends a request, and does not wait for its answer, so that several are under way at once.

    `url` is absolute; `method` is `GET`, or `POST` where there is a body, if not said. `body` may be an iterable of parts,
    each sent as soon as it is made; `json` is sent as `application/json`. `timeout` is how many seconds it may take to
    connect, and until the answer begins and goes on; without it, as long as the host lets it.
    """
    fields = list(headers.items() if isinstance(headers, Mapping) else headers)
    has = {name.lower() for name, _ in fields}
    if json is not None:
        body = to_json(json)
        if "content-type" not in has:
            fields.append(("content-type", "application/json"))
    method = method or ("GET" if body is None else "POST")
    content: bytes | Iterator[bytes]
    if body is None or isinstance(body, (bytes, bytearray, memoryview, str)):
        content = _encode(body or b"")
        if body is not None and "content-length" not in has:
            fields.append(("content-length", str(len(content))))
    else:
        content = (_encode(part) for part in body)
    request = f"{method} {url}"
    try:
        return Fetching(current().fetch(Outgoing(method, _split(url), fields, content, timeout)), request)
    except FetchFailure as failure:
        raise _failed(request, str(failure)) from None


def fetch(
    url: str,
    *,
    method: str | None = None,
    headers: errors.Headers = (),
    body: bytes | str | Iterable[bytes | str] | None = None,
    json: Any = None,
    timeout: float | None = None,
) -> Fetched:
    """Sends a request as `start` does, and waits for the head of its answer."""
    return start(url, method=method, headers=headers, body=body, json=json, timeout=timeout).wait()


def fetch_all(requests: Iterable[str | Fetching]) -> list[Fetched]:
    """Waits for several requests: URLs to get, or requests that were started. All are under way before the first is waited
    for; the answers are in the order of the requests."""
    started = [start(request) if isinstance(request, str) else request for request in requests]
    return [fetching.wait() for fetching in started]


def _encode(part: Any) -> bytes:
    return part.encode() if isinstance(part, str) else bytes(part)


def _failed(request: str, why: str) -> Error:
    return Error(502, "fetch_failed", f"{request}: {why}")


def _split(url: str) -> tuple[str, str, str]:
    """Scheme, authority, and path with query, without the fragment."""
    scheme, colon, rest = url.partition("#")[0].partition("://")
    end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    authority, target = rest[:end], rest[end:]
    if not (colon and scheme and authority):
        raise FetchFailure("the URL is not absolute")
    return scheme.lower(), authority, target if target.startswith("/") else f"/{target}"
