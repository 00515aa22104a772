"""Requests of the function's own, and its configuration."""

import os
import unittest
from unittest import mock

from weir import Error, Response, config, fetch, fetch_all, gather, start
from weir.testing import Host


def upstream(url, request):
    if url == "http://up.example/echo?a=1":
        headers = [(name, value) for name, value in request.headers.pairs if name.startswith("x-")]
        return Response.bytes(request.body(), "text/plain", status=404, headers=[*headers, ("x-method", request.method)])
    if url == "https://up.example:8443/json":
        return {"type": request.header("content-type"), "body": request.json()}
    if url == "http://up.example/parts":
        return iter(["a", "b"])
    raise Error(502, "gone", "connection refused")


class Fetches(unittest.TestCase):
    def setUp(self):
        self.host = Host(upstream=upstream)

    def fails(self, function):
        with self.assertRaises(Error) as raised:
            self.host.run(function)
        self.assertEqual((raised.exception.status, raised.exception.code), (502, "fetch_failed"))
        return raised.exception.detail

    def test_an_answer_is_an_answer_whatever_its_status(self):
        url = "HTTP://up.example/echo?a=1#part"
        answer = self.host.run(lambda: fetch(url, body="hi", headers={"X-Ask": "yes"}))
        self.assertEqual((answer.status, answer.header("X-ASK"), answer.header("x-method")), (404, "yes", "POST"))
        self.assertEqual((answer.text(), answer.header("Content-Type")), ("hi", "text/plain"))
        self.assertEqual(self.fails(answer.ok), f"POST {url}: answered 404")
        self.assertEqual(self.host.run(lambda: fetch(url)).header("x-method"), "GET")
        self.assertEqual(self.host.run(lambda: fetch(url, body=iter(["a", b"b"]))).body(), b"ab")

    def test_json(self):
        answer = self.host.run(lambda: fetch("https://up.example:8443/json", json={"a": 1}).ok())
        self.assertEqual(answer.json(), {"type": "application/json", "body": {"a": 1}})
        answer = self.host.run(lambda: fetch("http://up.example/parts"))
        self.assertEqual(self.fails(answer.json)[:40], "GET http://up.example/parts: the body is")

    def test_all_else_is_an_error_with_the_url(self):
        self.assertEqual(self.fails(lambda: fetch("http://down.example")), "GET http://down.example: connection refused")
        for url in ("/relative", "http:///path", "nowhere", ""):
            self.assertEqual(self.fails(lambda url=url: fetch(url)), f"GET {url}: the URL is not absolute")
        with self.assertRaises(Error) as raised:
            Host().run(lambda: fetch("http://up.example/"))
        self.assertIn("HttpRequestDenied", raised.exception.detail)

    def test_parts_are_passed_on(self):
        reply = self.host.call(lambda request: fetch("http://up.example/parts").chunks(), "GET", "/")
        self.assertEqual(reply.parts, [b"a", b"b"])

    def test_several_at_once(self):
        under_way = []

        class Slow(Host):
            """Gives no answer before it is waited for, and notes how many are under way by then."""

            def fetch(self, request):
                answer = super().fetch(request)
                get, asked = answer.get, []
                under_way.append(request.target)
                answer.get = lambda: get() if asked else asked.append(True)
                return answer

            def wait(self, waitables):
                under_way.append(len(waitables))
                return super().wait(waitables)

        urls = ["http://up.example/echo?a=1", "http://up.example/parts"]

        async def both(request):
            return [answer.status for answer in await gather(*map(start, urls))]

        host = Slow(upstream=upstream)
        self.assertEqual(host.call(both, "GET", "/").json(), [404, 200])
        self.assertEqual(under_way, ["/echo?a=1", "/parts", 2])
        under_way.clear()
        self.assertEqual([answer.status for answer in host.run(lambda: fetch_all([urls[0], start(urls[1])]))], [404, 200])
        self.assertEqual(under_way[:3], ["/parts", "/echo?a=1", 1])


class Configuration(unittest.TestCase):
    def test_values(self):
        host = Host(config={"GREETING": "hello"})
        self.assertEqual(host.run(lambda: config("GREETING")), "hello")
        self.assertEqual(host.run(lambda: config("NOTHING", "else")), "else")
        with self.assertRaises(Error) as raised:
            host.run(lambda: config("NOTHING"))
        self.assertEqual((raised.exception.status, raised.exception.code), (500, "missing_config"))

    def test_without_a_host_it_is_the_environment(self):
        with mock.patch.dict(os.environ, {"WEIR_TEST": "here"}):
            self.assertEqual(config("WEIR_TEST"), "here")


if __name__ == "__main__":
    unittest.main()
