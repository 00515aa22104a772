"""A client of a Weir server's API, for scripts and notebooks. Standard library only.

    from weir.client import Client

    weir = Client("http://127.0.0.1:7070")
    weir.models.put("magika", "model.onnx")
    weir.deploy("file-type", "function.wasm", models=["magika"])
    weir.call("file-type", body=b"some bytes").json()
    weir.usage(by=["function"], bucket="day")  # rows: list of dicts, as pandas.DataFrame takes them

Names and fields are those of the server's description (`GET /openapi.json`).
"""

from __future__ import annotations

import http.client
import json as _json
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from . import errors
from .message import Message

#: The operations that the client uses, by their ids in the server's description.
OPERATIONS = {
    "deploy": ("POST", "/v1/functions/{name}/revisions"),
    "list-functions": ("GET", "/v1/functions"),
    "show-function": ("GET", "/v1/functions/{name}"),
    "delete-function": ("DELETE", "/v1/functions/{name}"),
    "split-traffic": ("PUT", "/v1/functions/{name}/traffic"),
    "roll-back": ("POST", "/v1/functions/{name}/rollback"),
    "read-log": ("GET", "/v1/functions/{name}/logs"),
    "list-models": ("GET", "/v1/models"),
    "show-model": ("GET", "/v1/models/{name}"),
    "upload-model": ("PUT", "/v1/models/{name}"),
    "configure-model": ("PUT", "/v1/models/{name}/config"),
    "delete-model": ("DELETE", "/v1/models/{name}"),
    "read-usage": ("GET", "/v1/usage"),
    "read-usage-records": ("GET", "/v1/usage/records"),
    "show-devices": ("GET", "/v1/devices"),
}


class Problem(Exception):
    """What the server, or a function, refused: `status`, a stable `code`, `detail`, and `document`, the whole answer."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__(status, document)
        self.status = status
        self.document = dict(document)
        self.code: str = document.get("code") or "unknown"
        self.detail: str = document.get("detail") or document.get("title") or f"status {status}"

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.detail}"


class Answer(Message):
    """What a call was answered with, whatever its status: `status`, `headers`, `body()`, `text()`, `json()`.

    A body that is no text or JSON: `ValueError`.
    """

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        super().__init__(headers, body)
        self.status = status

    def ok(self) -> Answer:
        """The answer itself, or `Problem` where its status is 400 or more."""
        if self.status >= 400:
            raise Problem(self.status, _document(self.body()))
        return self

    def _not(self, what: str, why: str) -> NoReturn:
        raise ValueError(why)

    def __repr__(self) -> str:
        return f"<Answer {self.status}, {len(self.body())} bytes>"


class Client:
    """A server's API. What the server refuses is a `Problem`; one that cannot be reached, an `OSError`.

    `url`, `key`, `tenant` and `ca` (a file of certificates that the server's is trusted by) are `WEIR_URL`, `WEIR_TOKEN`,
    `WEIR_TENANT` and `WEIR_CA` where they are not said. A tenant has to be named with a key of no tenant; calls go to the
    tenant `default` where none is. `timeout` is in seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        *,
        ca: str | None = None,
        timeout: float = 300,
    ) -> None:
        def setting(given: str | None, name: str) -> str | None:
            return given or os.environ.get(name) or None

        self.url = setting(url, "WEIR_URL") or "http://127.0.0.1:7070"
        self._key, self.tenant = setting(key, "WEIR_TOKEN"), setting(tenant, "WEIR_TENANT")
        self._timeout = timeout
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"`{self.url}` is no http or https URL")
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        authorities = setting(ca, "WEIR_CA")
        self._tls = ssl.create_default_context(cafile=authorities) if parts.scheme == "https" else None
        #: The models of the tenant.
        self.models = Models(self)

    def deploy(
        self,
        name: str,
        component: str | Path | bytes,
        *,
        models: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        egress: Sequence[str] = (),
        traffic: int = 100,
        **config: Any,
    ) -> dict[str, Any]:
        """Makes a component, a file or its bytes, the newest revision of the function `name`, which gets `traffic` percent
        of the calls. `config` is the rest of its configuration, such as `idle_timeout="5s"`. Gives what became of it:
        `revision`, `digest`, `url` and more."""
        given = {"models": list(models), "env": dict(env or {}), "egress": list(egress)}
        config = {**config, **{field: value for field, value in given.items() if value}}
        content_type, body = _form(_json.dumps(config).encode(), _bytes(component))
        return self._ask("deploy", name, query={"traffic": traffic}, body=body, content_type=content_type)

    def functions(self, *, prefix: str | None = None, state: str | None = None) -> list[dict[str, Any]]:
        """The tenant's functions, by name."""
        return list(self._pages("list-functions", "functions", {"prefix": prefix, "state": state}))

    def function(self, name: str) -> dict[str, Any]:
        """A function with all that is known about it."""
        return self._ask("show-function", name)

    def delete(self, name: str) -> None:
        """Deletes a function; calls that run go on to their end."""
        self._ask("delete-function", name)

    def split(self, name: str, weights: Mapping[int, int]) -> dict[str, Any]:
        """Sets how calls are split over revisions: their weights by their numbers."""
        traffic = [{"revision": revision, "weight": weight} for revision, weight in weights.items()]
        return self._ask("split-traffic", name, json={"traffic": traffic})

    def roll_back(self, name: str, revision: int) -> dict[str, Any]:
        """Gives all calls to this revision."""
        return self._ask("roll-back", name, json={"revision": revision})

    def logs(self, name: str, *, tail: int = 100) -> list[dict[str, Any]]:
        """The last lines of a function's log."""
        lines: list[dict[str, Any]] = self._ask("read-log", name, query={"tail": tail})["lines"]
        return lines

    def call(
        self,
        name: str,
        path: str = "/",
        *,
        method: str | None = None,
        query: Mapping[str, str] | None = None,
        headers: errors.Headers = (),
        body: bytes | str | None = None,
        json: Any = None,
    ) -> Answer:
        """Calls a function, by `POST` where there is a body and by `GET` where there is none, if not said. `json` is sent as
        `application/json`. The answer is given whatever its status; `ok()` of it raises."""
        fields = list(headers.items() if isinstance(headers, Mapping) else headers)
        if json is not None:
            body = _json.dumps(json)
            fields.append(("content-type", "application/json"))
        content = body.encode() if isinstance(body, str) else body
        method = method or ("GET" if content is None else "POST")
        target = f"/fn/{quote(self.tenant or 'default', safe='')}/{quote(name, safe='')}/{path.removeprefix('/')}"
        return self._send(method, target + (f"?{urlencode(query)}" if query else ""), fields, content)

    def usage(
        self,
        *,
        by: Sequence[str] = (),
        bucket: str | None = None,
        since: str | None = None,
        until: str | None = None,
        **only: str,
    ) -> list[dict[str, Any]]:
        """What was used, as rows that `pandas.DataFrame` takes: `start`, what it is summed up `by` (such as `function`,
        `model`), and the sums, such as `calls` and `device_ns`; a sum that is 0 is left out.

        `bucket` is `minute`, `hour`, `day` or `month`; `since` and `until` are RFC 3339, this month if not said; `only` is
        what it is narrowed by, such as `function="rank"`.
        """
        query = {"by": ",".join(by) or None, "bucket": bucket, "from": since, "to": until, **only}
        rows = self._pages("read-usage", "rows", query)
        return [{"start": row["start"], **row["by"], **row["sums"]} for row in rows]

    def usage_records(
        self, *, since: str | None = None, until: str | None = None, **only: str
    ) -> Iterator[dict[str, Any]]:
        """Usage records, one of each call, oldest first; `only` narrows them, such as `function="rank"` or `id=` what an
        answer's header `weir-call` says."""
        for line in self._pages("read-usage-records", "records", {"from": since, "to": until, **only}):
            yield line["record"]

    def devices(self) -> dict[str, Any]:
        """What the devices do, and for whom."""
        return self._ask("show-devices")

    def _ask(
        self,
        operation: str,
        name: str = "",
        *,
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """What an operation answers with, read as JSON."""
        method, path = OPERATIONS[operation]
        fields = [("weir-tenant", self.tenant)] if self.tenant else []
        content = _json.dumps(json).encode() if json is not None else body
        if content is not None:
            fields.append(("content-type", content_type))
        asked = {key: str(value) for key, value in (query or {}).items() if value is not None}
        target = path.replace("{name}", quote(name, safe="")) + (f"?{urlencode(asked)}" if asked else "")
        answer = self._send(method, target, fields, content).ok()
        document: dict[str, Any] = answer.json() if answer.body() else {}
        return document

    def _pages(self, operation: str, field: str, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The items of all pages of a list."""
        after = None
        while True:
            page = self._ask(operation, query={**query, "after": after})
            yield from page[field]
            after = page.get("next")
            if after is None:
                return

    def _send(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes | None) -> Answer:
        if self._tls is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        try:
            connection.putrequest(method, self._path + target)
            if self._key is not None:
                connection.putheader("authorization", f"Bearer {self._key}")
            if body is not None or method in ("POST", "PUT", "PATCH"):
                connection.putheader("content-length", str(len(body or b"")))
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            return Answer(response.status, response.getheaders(), response.read())
        except http.client.HTTPException as error:
            raise OSError(f"{self.url}: the answer is not HTTP: {error!r}") from error
        finally:
            connection.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r}, tenant={self.tenant!r})"


class Models:
    """The models of a client's tenant."""

    def __init__(self, client: Client) -> None:
        self._ask, self._pages = client._ask, client._pages

    def put(self, name: str, model: str | Path | bytes, *, format: str = "onnx") -> dict[str, Any]:
        """Uploads a model, a file or its bytes, in place of the one of that name. Gives its signature and more."""
        content_type = "application/octet-stream"
        return self._ask("upload-model", name, query={"format": format}, body=_bytes(model), content_type=content_type)

    def configure(self, name: str, **config: Any) -> dict[str, Any]:
        """Sets how a model is held and run; what is not said is the default again."""
        return self._ask("configure-model", name, json=config)

    def list(self, *, prefix: str | None = None) -> list[dict[str, Any]]:
        """The models that the tenant's functions find, by name: its own, and public ones."""
        return [*self._pages("list-models", "models", {"prefix": prefix})]

    def show(self, name: str) -> dict[str, Any]:
        """A model: signature, configuration, and where it is in memory."""
        return self._ask("show-model", name)

    def delete(self, name: str) -> None:
        """Deletes a model that no function may use."""
        self._ask("delete-model", name)


def _bytes(content: str | Path | bytes) -> bytes:
    return content if isinstance(content, bytes) else Path(content).read_bytes()


def _form(config: bytes, component: bytes) -> tuple[str, bytes]:
    """A deploy's content type and body: `multipart/form-data`."""
    boundary = os.urandom(16).hex()
    lines = [
        f"--{boundary}\r\ncontent-disposition: form-data; name=\"config\"\r\ncontent-type: application/json\r\n\r\n".encode(),
        config,
        f"\r\n--{boundary}\r\ncontent-disposition: form-data; name=\"component\"\r\n"
        "content-type: application/wasm\r\n\r\n".encode(),
        component,
        f"\r\n--{boundary}--\r\n".encode(),
    ]
    return f"multipart/form-data; boundary={boundary}", b"".join(lines)


def _document(body: bytes) -> dict[str, Any]:
    """A problem document; of anything else, its text as the detail."""
    try:
        document = _json.loads(body)
    except ValueError:
        document = None
    return document if isinstance(document, dict) else {"detail": body.decode("utf-8", "replace")}
