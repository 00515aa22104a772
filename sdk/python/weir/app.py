"""Routes, and the one way from a request to its answer."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from . import log
from .aio import run
from .errors import Error
from .request import Request, unquote
from .response import Response, problem, response_of

Handler = Callable[[Request], Any]
H = TypeVar("H", bound=Handler)

#: A path's segments, its methods, or none for all, and who answers.
Route = tuple[list[str], tuple[str, ...], Handler]

_HERE = os.path.dirname(__file__)


class App:
    """A function's routes.

    A handler gets the request, and is a function or an `async def`. It gives a `Response`, a dict or list (sent as JSON), a
    str, bytes, `None` (204), or a generator of bytes or str, each of which is sent as soon as it is made. It raises `Error`
    to refuse; any other exception but `MemoryError` is 500 `function_error`.

    A segment `{name}` of a route takes any one segment of the path that is not empty, percent-decoded, as
    `request.params["name"]`; a last `{*name}` takes all that is left. A segment that is said goes before `{name}`, and that
    before `{*name}`; of routes that are alike the first one goes. `GET` answers `HEAD` too.
    """

    def __init__(self) -> None:
        self._routes: list[Route] = []

    def route(self, path: str, methods: Iterable[str] | None = None) -> Callable[[H], H]:
        """Adds a handler for `methods`, or for all of them. A path that does not begin with `/`: `ValueError`."""
        if not path.startswith("/"):
            raise ValueError(f"a route begins with `/`, not `{path}`")
        names = tuple(method.upper() for method in methods or ())

        def add(handler: H) -> H:
            self._routes.append((path.split("/"), names, handler))
            self._routes.sort(key=_rank)
            return handler

        return add

    def get(self, path: str) -> Callable[[H], H]:
        """Adds a handler for `GET` and `HEAD`."""
        return self.route(path, ["GET", "HEAD"])

    def post(self, path: str) -> Callable[[H], H]:
        """Adds a handler for `POST`."""
        return self.route(path, ["POST"])

    def put(self, path: str) -> Callable[[H], H]:
        """Adds a handler for `PUT`."""
        return self.route(path, ["PUT"])

    def patch(self, path: str) -> Callable[[H], H]:
        """Adds a handler for `PATCH`."""
        return self.route(path, ["PATCH"])

    def delete(self, path: str) -> Callable[[H], H]:
        """Adds a handler for `DELETE`."""
        return self.route(path, ["DELETE"])

    def __call__(self, request: Request) -> Response:
        """The answer to `request`. All that is raised becomes a problem document; what has a status of 500 or more is also
        a line in the log. A `MemoryError` that no handler caught is raised, which ends the sandbox: the host answers."""
        try:
            given = self._find(request)(request)
            return response_of(run(given) if hasattr(given, "__await__") else given)
        except MemoryError:
            # What is left is too little to go on with.
            raise
        except Exception as exception:
            return answer_to(exception)

    def _find(self, request: Request) -> Handler:
        """The handler for the request, whose `params` are set; or 404 `not_found`, 405 `method_not_allowed`."""
        segments = request.path.split("/")
        allowed: list[str] = []
        for pattern, methods, handler in self._routes:
            params = _match(pattern, segments)
            if params is None:
                continue
            if not methods or request.method in methods:
                request.params = params
                return handler
            allowed += [method for method in methods if method not in allowed]
        if allowed:
            raise Error.method_not_allowed(", ".join(allowed))
        raise Error.not_found(f"there is nothing at {request.path}")


def app_of(given: App | Handler) -> App:
    """The app itself, or one that has this handler for everything."""
    if isinstance(given, App):
        return given
    if not callable(given):
        raise TypeError(f"neither an App nor a handler: {given!r}")
    app = App()
    app.route("/{*path}")(given)
    return app


def answer_to(exception: BaseException) -> Response:
    """The problem that an exception becomes, with a line in the log where the fault is not the caller's."""
    error = Error.of(exception)
    if error.status >= 500:
        log.error(describe(exception))
    return problem(error)


def describe(exception: BaseException) -> str:
    """The exception as one line: what it says, and, if it is no `Error`, its type and where outside the SDK it was raised,
    innermost last."""
    error = Error.of(exception)
    if exception is error:
        return str(error)
    places = []
    traceback = exception.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if os.path.dirname(code.co_filename) != _HERE:
            places.append(f"{os.path.basename(code.co_filename)}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return f"{error} ({type(exception).__name__} at {' > '.join(places) or 'no known place'})"


def _rank(route: Route) -> list[int]:
    return [2 if part.startswith("{*") else 1 if part.startswith("{") else 0 for part in route[0]]


def _match(pattern: list[str], segments: list[str]) -> dict[str, str] | None:
    params = {}
    for index, part in enumerate(pattern):
        if part.startswith("{*") and part.endswith("}") and index < len(segments):
            params[part[2:-1]] = unquote("/".join(segments[index:]))
            return params
        if index >= len(segments):
            return None
        segment = segments[index]
        if part.startswith("{") and part.endswith("}") and segment:
            params[part[1:-1]] = unquote(segment)
        elif part != segment:
            return None
    return params if len(pattern) == len(segments) else None
