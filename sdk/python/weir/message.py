"""What requests and answers to requests of the function's own have in common: headers, and a body that comes in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from . import errors
from ._interface import Incoming
from .aio import Waiting
from .errors import Error


class Pairs(Mapping[str, str]):
    """Names and texts in order, where a name may come more than once. As a mapping it has the first text of each name."""

    def __init__(self, pairs: Iterable[tuple[str, str]], ignore_case: bool = False) -> None:
        self._fold = str.lower if ignore_case else str
        self._pairs = [(self._fold(name), text) for name, text in pairs]

    def __getitem__(self, name: str) -> str:
        for text in self.all(name):
            return text
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._pairs))

    def __len__(self) -> int:
        return len(dict(self._pairs))

    def all(self, name: str) -> list[str]:
        """All texts of this name, in order."""
        folded = self._fold(name)
        return [text for other, text in self._pairs if other == folded]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All of them, in order."""
        return list(self._pairs)

    def __repr__(self) -> str:
        return f"Pairs({self._pairs!r})"


class Chunks:
    """The parts of a body as they come, for `for` and for `async for`: bytes, never empty, at most 64 KiB each when they
    come from the host. After an error there are no more."""

    def __init__(self, source: Incoming | bytes) -> None:
        self._source: Incoming | bytes | None = source

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        source = self._source
        while source is not None:
            self._source = None
            part = source if isinstance(source, bytes) else source.read()
            if part is None:
                break
            if not isinstance(source, bytes):
                self._source = source
            if part:
                return part
            source = self._source
        raise StopIteration

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> bytes:
        if self._source is not None and not isinstance(self._source, bytes):
            await Waiting(self._source.waitable)
        for part in self:
            return part
        raise StopAsyncIteration


class Message:
    """Headers and a body. The body is read when it is first asked for, and kept, unless it is taken by `chunks`."""

    def __init__(self, headers: errors.Headers, body: Incoming | bytes) -> None:
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        #: All headers, by their names in any case: the first of a name, or `headers.all(name)`.
        self.headers = Pairs(pairs, ignore_case=True)
        self._body: Incoming | bytes | None = body

    def header(self, name: str, default: str | None = None) -> str | None:
        """The first header of this name, in any case, or `default`."""
        return self.headers.get(name, default)

    def body(self) -> bytes:
        """The whole body. Errors: those of its reading, such as 413 `body_too_large`."""
        if not isinstance(self._body, bytes):
            self._body = b"".join(self.chunks())
        return self._body

    def text(self) -> str:
        """The body as UTF-8."""
        try:
            return self.body().decode()
        except UnicodeDecodeError as error:
            self._not("text", f"the body is not UTF-8: {error}")

    def json(self) -> Any:
        """The body as JSON, in UTF-8."""
        try:
            return json.loads(self.body().decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            self._not("json", f"the body is not JSON: {error}")

    def chunks(self) -> Chunks:
        """The body part by part, for bodies that need not be in memory at once."""
        body, self._body = self._body, self._body if isinstance(self._body, bytes) else None
        if body is None:
            self._not("body", "the body was taken by `chunks` before")
        return Chunks(body)

    def _not(self, what: str, why: str) -> NoReturn:
        """Raises the error of a body that is no `what` (`text`, `json`), or is gone (`body`)."""
        raise Error(400, {"body": "unreadable_body"}.get(what, f"invalid_{what}"), why)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def decode(value: bytes) -> str:
    """A header's value as text: UTF-8, or else Latin-1, which every value is."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
