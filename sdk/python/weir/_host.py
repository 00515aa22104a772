"""The host of a sandbox: `wasi:http` 0.2 and `wasi:nn`, by the bindings that componentize-py makes. Nothing else of the SDK
imports them, so that all else is the same code in a sandbox and in a test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from componentize_py_types import Err, Ok
from wit_world.imports import graph, inference, monotonic_clock, outgoing_handler, poll, streams, types
from wit_world.imports import tensor as nn

from . import _interface, log
from ._interface import FetchFailure, NnFailure
from .app import App, answer_to, describe
from .errors import Error
from .message import decode
from .request import Request
from .response import Response

#: The most bytes asked of the host in one read of a body.
_READ_BYTES = 64 * 1024

_TENSOR_TYPES = {
    "f16": nn.TensorType.FP16,
    "bf16": nn.TensorType.BF16,
    "f32": nn.TensorType.FP32,
    "f64": nn.TensorType.FP64,
    "u8": nn.TensorType.U8,
    "i32": nn.TensorType.I32,
    "i64": nn.TensorType.I64,
}
_DTYPES = {kind: dtype for dtype, kind in _TENSOR_TYPES.items()}

_METHODS = {
    "GET": types.Method_Get,
    "HEAD": types.Method_Head,
    "POST": types.Method_Post,
    "PUT": types.Method_Put,
    "DELETE": types.Method_Delete,
    "CONNECT": types.Method_Connect,
    "OPTIONS": types.Method_Options,
    "TRACE": types.Method_Trace,
    "PATCH": types.Method_Patch,
}
_METHOD_NAMES = {kind: name for name, kind in _METHODS.items()}


class Wasi(_interface.Host):
    """The host of a sandbox."""

    def log(self, line: str) -> None:
        # One write, so that a line is one call into the host. A log that cannot be written is no reason to fail.
        try:
            os.write(2, line.encode("utf-8", "replace"))
        except OSError:
            pass

    def tensor(self, shape: list[int], dtype: str, data: bytes) -> _Data:
        return _Data(nn.Tensor(shape, _TENSOR_TYPES[dtype], data))

    def open(self, model: str) -> _Graph:
        try:
            return _Graph(graph.load_by_name(model).init_execution_context())
        except Err as error:
            raise _nn_failure(error) from None

    def fetch(self, request: _interface.Outgoing) -> _Answer:
        outgoing = types.OutgoingRequest(_fields(request.headers, FetchFailure))
        kind: Any = _METHODS.get(request.method)
        scheme: Any = {"http": types.Scheme_Http, "https": types.Scheme_Https}.get(request.scheme)
        try:
            outgoing.set_method(kind() if kind else types.Method_Other(request.method))
            outgoing.set_scheme(scheme() if scheme else types.Scheme_Other(request.scheme))
            outgoing.set_authority(request.authority)
            outgoing.set_path_with_query(request.target)
        except Err:
            raise FetchFailure("the method or the URL is not one of HTTP") from None
        body = outgoing.body()
        try:
            answer = outgoing_handler.handle(outgoing, _options(request.timeout))
        except Err as error:
            raise FetchFailure(_describe(error.value)) from None
        parts = iter([request.body]) if isinstance(request.body, bytes) else request.body
        # An upstream may answer, or hang up, before it has read all: its answer says more than that the rest was not taken.
        _send(body, parts)
        return _Answer(answer)

    def timer(self, seconds: float) -> _Timer:
        return _Timer(monotonic_clock.now() + max(0, int(seconds * 1e9)))

    def wait(self, waitables: Sequence[Any]) -> list[int]:
        pollables = [waitable.subscribe() for waitable in waitables]
        ready = poll.poll(pollables)
        # A pollable has to go before what it is of.
        for pollable in pollables:
            pollable.__exit__(None, None, None)
        return ready


class _Timer:
    def __init__(self, when: int) -> None:
        self._when = when

    def subscribe(self) -> poll.Pollable:
        return monotonic_clock.subscribe_instant(self._when)


class _Data:
    def __init__(self, tensor: nn.Tensor) -> None:
        self.tensor = tensor

    def shape(self) -> list[int]:
        return self.tensor.dimensions()

    def dtype(self) -> str:
        return _DTYPES[self.tensor.ty()]

    def data(self) -> bytes:
        return self.tensor.data()


class _Graph:
    def __init__(self, context: inference.GraphExecutionContext) -> None:
        self._context = context

    def run(self, inputs: list[tuple[str, _Data]]) -> list[tuple[str, _Data]]:
        try:
            outputs = self._context.compute([(name, data.tensor) for name, data in inputs])
        except Err as error:
            raise _nn_failure(error) from None
        return [(name, _Data(tensor)) for name, tensor in outputs]


def _nn_failure(error: Any) -> NnFailure:
    return NnFailure(error.value.code().name.lower().replace("_", "-"), error.value.data())


class _Body:
    """A body that comes in. What it is of is held as long."""

    def __init__(self, head: types.IncomingRequest | types.IncomingResponse) -> None:
        self._head = head
        self._body: types.IncomingBody | None = None
        self._stream: streams.InputStream | None = None
        self._ended = False

    @property
    def waitable(self) -> streams.InputStream:
        if self._stream is None:
            self._body = self._head.consume()
            self._stream = self._body.stream()
        return self._stream

    def read(self) -> bytes | None:
        if self._ended:
            return None
        try:
            return self.waitable.blocking_read(_READ_BYTES)
        except Err as error:
            self._ended = True
            if isinstance(error.value, streams.StreamError_LastOperationFailed):
                raise self._failure(error.value.value) from None
            return None

    def _failure(self, error: Any) -> Error:
        why = f"the body ended early: {error.to_debug_string()}"
        if isinstance(self._head, types.IncomingResponse):
            return Error(502, "fetch_failed", f"the upstream: {why}")
        if isinstance(types.http_error_code(error), types.ErrorCode_HttpRequestBodySize):
            return Error(413, "body_too_large", "the request's body is larger than the host takes")
        return Error(400, "unreadable_body", why)


class _Answer:
    def __init__(self, answer: types.FutureIncomingResponse) -> None:
        self.waitable = answer

    def get(self) -> tuple[int, list[tuple[str, str]], _Body] | None:
        answer = self.waitable.get()
        if answer is None:
            return None
        if isinstance(answer, Err):
            raise FetchFailure("the answer was taken before")
        if isinstance(answer.value, Err):
            raise FetchFailure(_describe(answer.value.value))
        head = answer.value.value
        return head.status(), _entries(head.headers()), _Body(head)


def _describe(code: Any) -> str:
    """The error's name in `wasi:http`, with what it carries."""
    name = type(code).__name__.removeprefix("ErrorCode_")
    carried = getattr(code, "value", None)
    return name if carried is None else f"{name}({carried!r})"


def _options(timeout: float | None) -> types.RequestOptions | None:
    if timeout is None:
        return None
    options = types.RequestOptions()
    nanos = max(0, int(timeout * 1e9))
    for set_timeout in (options.set_connect_timeout, options.set_first_byte_timeout, options.set_between_bytes_timeout):
        try:
            set_timeout(nanos)
        except Err:
            pass  # A host that does not offer one of them has its own.
    return options


def _entries(fields: types.Fields) -> list[tuple[str, str]]:
    return [(name, decode(value)) for name, value in fields.entries()]


def _fields(headers: list[tuple[str, str]], failure: Any) -> types.Fields:
    """The headers as the host's. One that HTTP does not allow: `failure` with what is wrong."""
    fields = types.Fields()
    for name, value in headers:
        try:
            fields.append(str(name), str(value).encode())
        except Err as error:
            why = type(error.value).__name__.removeprefix("HeaderError_")
            raise failure(f"the header `{name}` cannot be sent: {why}") from None
    return fields


def serve(app: App, request: types.IncomingRequest, out: types.ResponseOutparam) -> None:
    """Answers one request of the host with what the app makes of it."""
    kind = request.method()
    method = kind.value if isinstance(kind, types.Method_Other) else _METHOD_NAMES[type(kind)]
    response = app(Request(method, request.path_with_query() or "/", _entries(request.headers()), _Body(request)))
    try:
        outgoing = _outgoing(response)
    except Error as error:
        response = answer_to(error)
        outgoing = _outgoing_or_bare(response)
    body = outgoing.body()
    types.ResponseOutparam.set(out, Ok(outgoing))
    streamed = not isinstance(response.body, bytes)
    _send(body, iter(()) if method == "HEAD" and streamed else response.parts())


def _outgoing(response: Response) -> types.OutgoingResponse:
    """Status and headers as the host's, or 500 `invalid_response`."""

    def invalid(why: str) -> Error:
        return Error(500, "invalid_response", f"the response: {why}")

    headers = list(response.headers)
    if response.needs_content_length():
        headers.append(("content-length", str(len(response.body))))  # type: ignore[arg-type]
    outgoing = types.OutgoingResponse(_fields(headers, invalid))
    try:
        if not 200 <= response.status <= 599:
            raise ValueError
        outgoing.set_status_code(response.status)
    except (Err, TypeError, ValueError):
        raise invalid(f"the status {response.status!r} cannot be sent") from None
    return outgoing


def _outgoing_or_bare(response: Response) -> types.OutgoingResponse:
    """As `_outgoing`; without its headers where it is these that cannot be sent."""
    try:
        return _outgoing(response)
    except Error:
        return _outgoing(Response(response.status, body=response.body))


def _send(body: types.OutgoingBody, parts: Iterator[bytes]) -> None:
    """Sends a body, each part as soon as it is made. An exception among them ends it unfinished, so that the receiver sees
    that something is missing; where the receiver has gone, the rest is not made."""
    try:
        with body.write() as stream:
            for part in parts:
                _write(stream, part)
    except Err:
        body.__exit__(None, None, None)
        return
    except MemoryError:
        raise
    except Exception as exception:
        log.error(describe(exception))
        body.__exit__(None, None, None)
        return
    finally:
        close = getattr(parts, "close", None)
        if close is not None:
            close()
    try:
        types.OutgoingBody.finish(body, None)
    except Err:
        pass  # The receiver has gone: there is nobody left to tell.


def _write(stream: streams.OutputStream, part: bytes) -> None:
    """Writes as much at a time as the host has room for, waits when it has none, and is done when it has taken all."""
    at = 0
    while at < len(part):
        room = stream.check_write()
        if room == 0:
            with stream.subscribe() as ready:
                ready.block()
            continue
        stream.write(part[at : at + room])
        at += room
    if part:
        stream.blocking_flush()
