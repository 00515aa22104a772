"""What the SDK asks of its host, and which host that is now: `_host.Wasi` in a sandbox, `testing.Host` in a test, and
`Host` itself, which has nothing but the process's environment and stderr, anywhere else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol


class NnFailure(Exception):
    """Why the host could not do something with a model: a code of `wasi:nn`, and what it says of it."""

    def __init__(self, code: str, data: str) -> None:
        super().__init__(code, data)
        self.code = code
        self.data = data


class FetchFailure(Exception):
    """Why a request of the function's own found no answer."""


class Data(Protocol):
    """A tensor that the host holds."""

    def shape(self) -> list[int]: ...
    def dtype(self) -> str: ...
    def data(self) -> bytes: ...


class Graph(Protocol):
    """A model that the host holds. `run` takes the inputs away, and raises `NnFailure`."""

    def run(self, inputs: list[tuple[str, Any]]) -> list[tuple[str, Any]]: ...


class Incoming(Protocol):
    """A body that comes in. `read` waits for the next part, `None` at the end, and raises `Error`; `waitable` is for
    `Host.wait`."""

    @property
    def waitable(self) -> Any: ...

    def read(self) -> bytes | None: ...


class Outgoing:
    """A request to send. `body` is all of it, or an iterator over its parts."""

    def __init__(
        self,
        method: str,
        url: tuple[str, str, str],
        headers: list[tuple[str, str]],
        body: bytes | Iterator[bytes],
        timeout: float | None,
    ) -> None:
        self.method = method
        self.scheme, self.authority, self.target = url
        self.headers = headers
        self.body = body
        self.timeout = timeout


class Answer(Protocol):
    """A request that was sent. `get` gives status, headers and body of its answer once, `None` while there is none, and
    raises `FetchFailure`."""

    @property
    def waitable(self) -> Any: ...

    def get(self) -> tuple[int, list[tuple[str, str]], Incoming] | None: ...


class LocalData:
    """A tensor where no host holds any."""

    def __init__(self, shape: list[int], dtype: str, data: bytes) -> None:
        self._shape, self._dtype, self._data = shape, dtype, data

    def shape(self) -> list[int]:
        return self._shape

    def dtype(self) -> str:
        return self._dtype

    def data(self) -> bytes:
        return self._data


class Host:
    """The host of a process that is no sandbox and no test."""

    def config(self, name: str) -> str | None:
        return os.environ.get(name)

    def log(self, line: str) -> None:
        """Writes a line, which ends with a line break."""
        sys.stderr.write(line)

    def tensor(self, shape: list[int], dtype: str, data: bytes) -> Data:
        return LocalData(shape, dtype, data)

    def open(self, model: str) -> Graph:
        """The model, or `NnFailure`."""
        raise NnFailure("not-found", "there is no host: call the function by `weir.testing.Host`")

    def fetch(self, request: Outgoing) -> Answer:
        """Sends the request, or raises `FetchFailure`."""
        raise FetchFailure("there is no host: call the function by `weir.testing.Host`")

    def timer(self, seconds: float) -> Any:
        """What `wait` waits that long for."""
        return seconds

    def wait(self, waitables: Sequence[Any]) -> list[int]:
        """Waits until at least one is ready, and gives the indexes of those that are. Here time passes at once."""
        return list(range(len(waitables)))


_current = Host()


def current() -> Host:
    """The host that is asked now."""
    return _current


def use(host: Host) -> None:
    """From now on `host` is asked."""
    global _current
    _current = host


@contextmanager
def within(host: Host) -> Iterator[None]:
    """Inside of it `host` is asked, and afterwards the one before."""
    before = _current
    use(host)
    try:
        yield
    finally:
        use(before)
