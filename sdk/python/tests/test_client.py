"""The client, against a server of the test's own, and against the description of a real one.

`WEIR_OPENAPI` names a file with that description: what `weir openapi` prints.
"""

import json
import os
import re
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from weir.client import OPERATIONS, Client, Problem


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.server.asked.append((self.command, parts.path, query, dict(self.headers.items()), body))
        status, document = self.server.answers.pop(0) if self.server.answers else (200, {})
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.send_header("x-reply", "yes")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = answer


class WithServer(unittest.TestCase):
    def setUp(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.asked, self.server.answers = [], []
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        with mock.patch.dict(os.environ):
            for name in ("WEIR_URL", "WEIR_TOKEN", "WEIR_TENANT", "WEIR_CA"):
                os.environ.pop(name, None)
            self.client = Client(f"http://127.0.0.1:{self.server.server_port}", "weir_a_b", "acme")

    def answers(self, *answers):
        self.server.answers[:] = answers

    def asked(self):
        (asked,) = self.server.asked
        self.server.asked.clear()
        return asked


class Requests(WithServer):
    def test_key_and_tenant_are_sent(self):
        self.client.devices()
        method, path, _, headers, _ = self.asked()
        self.assertEqual((method, path), ("GET", "/v1/devices"))
        self.assertEqual((headers["authorization"], headers["weir-tenant"]), ("Bearer weir_a_b", "acme"))

    def test_a_deploy_is_a_form(self):
        self.answers((201, {"revision": 1}))
        made = self.client.deploy("rank", b"\0asm\r\n--", models=["m"], env={"A": "1"}, traffic=10, idle_timeout="5s")
        self.assertEqual(made, {"revision": 1})
        method, path, query, headers, body = self.asked()
        self.assertEqual((method, path, query), ("POST", "/v1/functions/rank/revisions", {"traffic": "10"}))
        boundary = re.fullmatch("multipart/form-data; boundary=(.+)", headers["content-type"])[1].encode()
        before, config, component, after = body.split(b"--" + boundary)
        self.assertEqual((before, after), (b"", b"--\r\n"))
        self.assertIn(b'name="config"', config)
        config = json.loads(config.split(b"\r\n\r\n")[1])
        self.assertEqual(config, {"idle_timeout": "5s", "models": ["m"], "env": {"A": "1"}})
        self.assertIn(b'name="component"', component)
        self.assertTrue(component.endswith(b"\r\n\r\n\0asm\r\n--\r\n"))

    def test_all_pages_of_a_list_are_read(self):
        self.answers((200, {"functions": [{"function": "a"}], "next": "a"}), (200, {"functions": [{"function": "b"}]}))
        self.assertEqual([one["function"] for one in self.client.functions(prefix="x")], ["a", "b"])
        queries = [query for _, _, query, _, _ in self.server.asked]
        self.assertEqual(queries, [{"prefix": "x"}, {"prefix": "x", "after": "a"}])

    def test_usage_is_rows(self):
        row = {"start": "2026-12-01T00:00:00Z", "by": {"function": "rank"}, "sums": {"calls": 3}}
        self.answers((200, {"rows": [row], "next": None}))
        rows = self.client.usage(by=["function", "model"], bucket="day", since="2026-12-01T00:00:00Z", outcome="answered")
        self.assertEqual(rows, [{"start": "2026-12-01T00:00:00Z", "function": "rank", "calls": 3}])
        self.assertEqual(
            self.asked()[2],
            {"by": "function,model", "bucket": "day", "from": "2026-12-01T00:00:00Z", "outcome": "answered"},
        )

    def test_calls(self):
        self.answers((409, {"code": "taken", "detail": "it is taken"}), (200, b"text"))
        answer = self.client.call("rank", "/a/b", query={"q": "1 2"}, json={"x": 1}, headers={"x-ask": "yes"})
        method, path, query, headers, body = self.asked()
        self.assertEqual((method, path, query, body), ("POST", "/fn/acme/rank/a/b", {"q": "1 2"}, b'{"x": 1}'))
        self.assertEqual((headers["content-type"], headers["x-ask"]), ("application/json", "yes"))
        self.assertEqual((answer.status, answer.header("X-Reply"), answer.json()["code"]), (409, "yes", "taken"))
        with self.assertRaises(Problem):
            answer.ok()
        answer = self.client.call("rank")
        self.assertEqual((self.asked()[0], answer.ok().text()), ("GET", "text"))
        with self.assertRaises(ValueError):
            answer.json()

    def test_refusals_are_problems(self):
        self.answers((404, {"code": "not_found", "detail": "no such function", "retryable": False}))
        with self.assertRaises(Problem) as raised:
            self.client.function("a/b")
        problem = raised.exception
        self.assertEqual((problem.status, problem.code, problem.detail), (404, "not_found", "no such function"))
        self.assertEqual((str(problem), problem.document["retryable"]), ("404 not_found: no such function", False))
        self.assertEqual(self.asked()[1], "/v1/functions/a%2Fb")
        self.answers((502, b"<html>"))
        with self.assertRaises(Problem) as raised:
            self.client.devices()
        self.assertEqual((raised.exception.code, raised.exception.detail), ("unknown", "<html>"))

    def test_settings_are_those_of_the_environment(self):
        with mock.patch.dict(os.environ, {"WEIR_URL": self.client.url, "WEIR_TOKEN": "weir_c_d", "WEIR_TENANT": ""}):
            Client().call("rank")
        _, path, _, headers, _ = self.asked()
        self.assertEqual((path, headers["authorization"]), ("/fn/default/rank/", "Bearer weir_c_d"))
        self.assertNotIn("weir-tenant", headers)

    def test_a_server_that_is_not_there(self):
        with self.assertRaises(OSError):
            Client("http://127.0.0.1:9").devices()
        with self.assertRaises(ValueError):
            Client("127.0.0.1:7070")


@unittest.skipUnless(os.environ.get("WEIR_OPENAPI"), "WEIR_OPENAPI names no description")
class Description(WithServer):
    """Every operation, with all that its methods can send."""

    def setUp(self):
        super().setUp()
        with open(os.environ["WEIR_OPENAPI"], encoding="utf-8") as file:
            self.paths = json.load(file)["paths"]

    def test_every_operation_is_described(self):
        found = {}
        for path, methods in self.paths.items():
            for method, operation in methods.items():
                if isinstance(operation, dict) and operation.get("operationId") in OPERATIONS:
                    found[operation["operationId"]] = (method.upper(), path)
        self.assertEqual(found, OPERATIONS)

    def test_what_is_sent_is_described(self):
        client, nothing = self.client, {"functions": [], "models": [], "rows": [], "records": [], "lines": []}
        span = {"since": "2026-12-01T00:00:00Z", "until": "2026-12-02T00:00:00Z"}
        sends = [
            lambda: client.deploy("f", b"", traffic=1),
            lambda: client.functions(prefix="f", state="ready"),
            lambda: client.function("f"),
            lambda: client.delete("f"),
            lambda: client.split("f", {1: 1}),
            lambda: client.roll_back("f", 1),
            lambda: client.logs("f", tail=1),
            lambda: client.models.put("m", b""),
            lambda: client.models.configure("m", pin=True),
            lambda: client.models.list(prefix="m"),
            lambda: client.models.show("m"),
            lambda: client.models.delete("m"),
            lambda: client.usage(by=["model"], bucket="day", function="f", **span),
            lambda: list(client.usage_records(id="1-1", **span)),
            lambda: client.devices(),
        ]
        sent = set()
        for send in sends:
            self.answers((200, nothing))
            send()
            method, path, query, headers, body = self.asked()
            path = re.sub("(?<=/v1/functions/)f|(?<=/v1/models/)m", "{name}", path)
            operation = self.paths[path][method.lower()]
            sent.add(operation["operationId"])
            described = {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "query"}
            self.assertLessEqual(set(query), described, operation["operationId"])
            if body:
                self.assertIn(headers["content-type"].partition(";")[0], operation["requestBody"]["content"])
        self.assertEqual(sent, set(OPERATIONS))


if __name__ == "__main__":
    unittest.main()
