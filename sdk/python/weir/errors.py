"""What goes wrong in a function, and the answer it becomes.

An `Error` that leaves a handler is answered with its status and an `application/problem+json` body (RFC 9457) that
carries a stable `code`; one with a status of 500 or more is also a line in the function's log. Codes of the SDK's
own making:

| from | status | code |
| --- | --- | --- |
| `Request.json`, `Request.text` | 400 | `invalid_json`, `invalid_text` |
| the body could not be read; was larger than the host takes | 400; 413 | `unreadable_body`; `body_too_large` |
| a shape or an element type that does not fit; `wasi:nn` `invalid-argument` | 400 | `invalid_tensor` |
| `wasi:nn` `not-found`, `security` | 500 | `model_unavailable` |
| `wasi:nn` `invalid-encoding`, `unsupported-operation` | 500 | `model_unsupported` |
| `wasi:nn` `runtime-error`, `unknown` | 500 | `model_failed` |
| `wasi:nn` `too-large` (memory or quota), `timeout` | 503, `Retry-After: 1` | `model_too_large`, `model_timeout` |
| an output asked for that the model does not have | 500 | `no_such_output` |
| no route for the path; for the method | 404; 405 with `Allow` | `not_found`; `method_not_allowed` |
| a `fetch` that found no answer, or not the one expected | 502 | `fetch_failed` |
| a value missing from the function's configuration | 500 | `missing_config` |
| a status or header that HTTP does not allow, or a body of a type that none is made of | 500 | `invalid_response` |
| any other exception but `MemoryError`, which ends the sandbox: the host answers | 500 | `function_error` |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


class Error(Exception):
    """Why a function could not answer: an HTTP status (400 to 599; anything else is answered as 500), a stable code
    for programs (`snake_case`), a sentence for people, and headers of the answer.
    """

    def __init__(self, status: int, code: str, detail: str, headers: Headers = ()) -> None:
        super().__init__(status, code, detail)
        self.status = status if 400 <= status <= 599 else 500
        self.code = code
        self.detail = detail
        self.headers = list(headers.items() if isinstance(headers, Mapping) else headers)

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.detail}"

    @classmethod
    def bad_request(cls, detail: str) -> Error:
        """400 `bad_request`: the caller's fault."""
        return cls(400, "bad_request", detail)

    @classmethod
    def not_found(cls, detail: str) -> Error:
        """404 `not_found`."""
        return cls(404, "not_found", detail)

    @classmethod
    def method_not_allowed(cls, allowed: str) -> Error:
        """405 `method_not_allowed`, with an `Allow` header that lists `allowed`, such as `"GET, POST"`."""
        return cls(405, "method_not_allowed", f"use {allowed}", {"allow": allowed})

    @classmethod
    def of(cls, exception: BaseException) -> Error:
        """The exception itself if it is an `Error`; else 500 `function_error` with its text."""
        if isinstance(exception, cls):
            return exception
        return cls(500, "function_error", str(exception) or type(exception).__name__)


#: What each error code of `wasi:nn` becomes: status, code, and what it means.
_NN = {
    "invalid-argument": (400, "invalid_tensor", "invalid argument"),
    "not-found": (500, "model_unavailable", "not found"),
    "security": (500, "model_unavailable", "not allowed"),
    "invalid-encoding": (500, "model_unsupported", "invalid encoding"),
    "unsupported-operation": (500, "model_unsupported", "unsupported operation"),
    "runtime-error": (500, "model_failed", "runtime error"),
    "unknown": (500, "model_failed", "unknown error"),
    "too-large": (503, "model_too_large", "too large"),
    "timeout": (503, "model_timeout", "timed out"),
}


def nn_error(model: str, code: str, data: str) -> Error:
    """The error of a `wasi:nn` call about `model`, by the table above; `data` is what the host says of it."""
    status, ours, meaning = _NN.get(code, _NN["unknown"])
    return Error(status, ours, f"model `{model}`: {data or meaning}", {"retry-after": "1"} if status == 503 else ())
