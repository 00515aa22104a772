"""Tests of functions with plain `unittest` or pytest: a host of the test's own making, without Wasm and without a server.

    from weir.testing import Host
    from app import app

    def test_score():
        host = Host(models={"name": lambda inputs: {"y": [2 * x for x in inputs["x"].tolist()]}})
        reply = host.call(app, "POST", "/score", json={"x": [1, 2.5]})
        assert reply.json() == {"y": [2.0, 5.0]}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import _interface, errors, log
from ._interface import Answer, FetchFailure, Graph, Incoming, NnFailure, Outgoing, within
from .app import App, Handler, app_of, describe
from .errors import Error
from .fetch import Fetched
from .request import Request
from .response import response_of, to_json
from .tensor import Tensor

Run = Callable[[dict[str, Tensor]], Mapping[str, Any]]
Upstream = Callable[[str, Request], Any]


class Host(_interface.Host):
    """A host for tests: the function's configuration, the models that it may open, the upstream that its requests go to.

    A model gets its inputs by their names, and gives its outputs: tensors, or what `Tensor(…)` takes. An `Error` of less than
    500 is what the host says of wrong inputs, another one a model that failed. The upstream gets the URL and the request, and
    gives what a handler may give; an `Error` is a request that found no answer. Without an upstream each is refused.

    `lines` are the lines logged so far, such as `INFO started`.
    """

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        models: Mapping[str, Run] | None = None,
        upstream: Upstream | None = None,
    ) -> None:
        self._config = dict(config or {})
        self._models = dict(models or {})
        self._upstream = upstream
        self.lines: list[str] = []

    def call(
        self,
        app: App | Handler,
        method: str,
        target: str,
        *,
        headers: errors.Headers = (),
        body: bytes | str | Iterable[bytes] = b"",
        json: Any = None,
    ) -> Reply:
        """One call: what its caller reads. `target` is a path, and may have a query; `body` may be parts, which come one by
        one; `json` is a body of JSON. The answer has been made to its end."""
        if json is not None:
            body = to_json(json)
        content = body.encode() if isinstance(body, str) else body
        request = Request(method, target, headers, content if isinstance(content, bytes) else _Parts(iter(content)))
        parts: list[bytes] = []
        complete = True
        with within(self):
            response = app_of(app)(request)
            fields = list(response.headers)
            if response.needs_content_length():
                fields.append(("content-length", str(sum(map(len, response.parts())))))
            if method != "HEAD":
                try:
                    parts.extend(part for part in response.parts() if part)
                except Exception as exception:
                    log.error(describe(exception))
                    complete = False
        return Reply(response.status, fields, parts, complete)

    def run(self, function: Callable[[], Any]) -> Any:
        """Runs what is no handler on this host, such as a function that opens a model."""
        with within(self):
            return function()

    def config(self, name: str) -> str | None:
        return self._config.get(name)

    def log(self, line: str) -> None:
        self.lines.append(line.removesuffix("\n"))

    def open(self, model: str) -> Graph:
        if model not in self._models:
            raise NnFailure("not-found", "the test's host has no such model")
        return _Model(self._models[model])

    def fetch(self, request: Outgoing) -> Answer:
        if self._upstream is None:
            raise FetchFailure("HttpRequestDenied: the test's host has no upstream")
        body = request.body if isinstance(request.body, bytes) else b"".join(request.body)
        url = f"{request.scheme}://{request.authority}{request.target}"
        try:
            response = response_of(self._upstream(url, Request(request.method, request.target, request.headers, body)))
        except Error as error:
            raise FetchFailure(error.detail) from None
        return _Answer((response.status, response.headers, _Parts(response.parts())))


class Reply(Fetched):
    """What a call's caller reads: `status`, `headers`, the body, and the `parts` that it was sent in. An answer that an
    exception ended is not `complete`."""

    def __init__(self, status: int, headers: errors.Headers, parts: list[bytes], complete: bool = True) -> None:
        super().__init__(status, headers, b"".join(parts), "the call")
        self.parts = parts
        self.complete = complete


class _Parts:
    """A body that comes in part by part."""

    waitable = None

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts

    def read(self) -> bytes | None:
        return next(self._parts, None)


class _Model:
    def __init__(self, run: Run) -> None:
        self._run = run

    def run(self, inputs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        try:
            outputs = self._run({name: Tensor._of_host(data) for name, data in inputs})
        except Error as error:
            raise NnFailure("invalid-argument" if error.status < 500 else "runtime-error", error.detail) from None
        tensors = ((name, given if isinstance(given, Tensor) else Tensor(given)) for name, given in outputs.items())
        return [(name, tensor._give()) for name, tensor in tensors]


class _Answer:
    waitable = None

    def __init__(self, answer: tuple[int, list[tuple[str, str]], Incoming]) -> None:
        self._answer = answer

    def get(self) -> tuple[int, list[tuple[str, str]], Incoming] | None:
        return self._answer
