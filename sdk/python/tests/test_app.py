"""Routes, requests and answers."""

import unittest

from weir import App, Error, Event, Request, Response, gather, log, sleep
from weir.testing import Host


def call(app, method, target, **more):
    return Host().call(app, method, target, **more)


class Routes(unittest.TestCase):
    def setUp(self):
        self.app = app = App()

        @app.get("/items/{id}/parts/{part}")
        def part(request):
            return request.params

        @app.route("/files/{*path}", methods=["put", "delete"])
        def file(request):
            return request.params["path"]

        @app.route("/any")
        def any_method(request):
            return request.method

        @app.post("/items/new")
        async def new(request):
            return {"new": request.json()}

    def test_parameters_are_decoded(self):
        self.assertEqual(call(self.app, "GET", "/items/a%20b/parts/7").json(), {"id": "a b", "part": "7"})
        self.assertEqual(call(self.app, "PUT", "/files/a/b%2Fc").text(), "a/b/c")
        self.assertEqual(call(self.app, "PUT", "/files/").text(), "")
        self.assertEqual(call(self.app, "GET", "/items//parts/7").status, 404)
        self.assertEqual(call(self.app, "GET", "/items/1/parts/7/").status, 404)

    def test_what_is_said_goes_before_what_is_taken(self):
        app = App()
        for path in ("/{*all}", "/{a}/{b}", "/{a}/b", "/a/{b}", "/a/b", "/a/b"):
            app.get(path)(lambda request, path=path, number=len(app._routes): [path, number])
        asked = [("/a/b", 4), ("/a/x", 3), ("/x/b", 2), ("/x/y", 1), ("/x", 0), ("/a/b/c", 0), ("/", 0)]
        self.assertEqual([call(app, "GET", path).json()[1] for path, _ in asked], [number for _, number in asked])

    def test_no_route_and_no_method(self):
        reply = call(self.app, "GET", "/nowhere")
        self.assertEqual((reply.status, reply.json()["code"]), (404, "not_found"))
        reply = call(self.app, "PUT", "/items/new")
        self.assertEqual((reply.status, reply.header("allow")), (405, "POST"))
        self.assertEqual(
            reply.json(),
            {
                "type": "about:blank",
                "title": "Method Not Allowed",
                "status": 405,
                "code": "method_not_allowed",
                "detail": "use POST",
            },
        )
        self.assertEqual(reply.header("content-type"), "application/problem+json")
        self.assertEqual(call(self.app, "POST", "/items/1/parts/2").header("allow"), "GET, HEAD")

    def test_get_answers_head_without_a_body(self):
        reply = call(self.app, "HEAD", "/items/1/parts/2")
        self.assertEqual((reply.status, reply.body()), (200, b""))
        self.assertEqual(reply.header("content-length"), str(len(b'{"id":"1","part":"2"}')))

    def test_all_methods_and_coroutines(self):
        self.assertEqual(call(self.app, "BREW", "/any").text(), "BREW")
        self.assertEqual(call(self.app, "POST", "/items/new", json=[1]).json(), {"new": [1]})

    def test_a_handler_is_an_app(self):
        self.assertEqual(call(lambda request: request.path, "GET", "/any/where").text(), "/any/where")

    def test_a_route_begins_with_a_slash(self):
        with self.assertRaises(ValueError):
            self.app.get("items")


class Requests(unittest.TestCase):
    def test_the_query_is_decoded(self):
        request = Request("GET", "/a%20b?name=J%C3%BCrgen+K&flag&x=1&x=2&bad=%zz%4&=v&bytes=%ff")
        self.assertEqual(request.path, "/a%20b")
        self.assertEqual(request.query["name"], "Jürgen K")
        self.assertEqual((request.query["flag"], request.query.all("x")), ("", ["1", "2"]))
        self.assertEqual((request.query["bad"], request.query["bytes"]), ("%zz%4", "\ufffd"))
        self.assertEqual(len(request.query.pairs), 7)
        self.assertNotIn("none", request.query)
        self.assertEqual(Request("GET", "?a=1").path, "/")

    def test_headers_are_found_in_any_case(self):
        request = Request("GET", "/", [("X-One", "1"), ("x-one", "2")])
        self.assertEqual((request.header("x-oNe"), request.headers.all("X-ONE")), ("1", ["1", "2"]))
        self.assertEqual((request.header("accept"), request.header("accept", "*/*")), (None, "*/*"))

    def test_bodies_are_checked(self):
        for body in (b"{", b'{"a": NaN}', b"\xff", b"", b"[" * 100_000):
            with self.subTest(body[:9]), self.assertRaises(Error) as raised:
                Request("POST", "/", body=body).json()
            self.assertEqual((raised.exception.status, raised.exception.code), (400, "invalid_json"))
        with self.assertRaises(Error) as raised:
            Request("POST", "/", body=b"\xff").text()
        self.assertEqual(raised.exception.code, "invalid_text")

    def test_a_body_is_read_once_and_kept_or_taken_in_parts(self):
        def twice(request):
            return request.text() + request.text()

        def taken(request):
            return b"-".join(request.chunks()) + request.body()

        async def counted(request):
            return str([len(part) async for part in request.chunks()])

        parts = [b"ab", b"", b"c"]
        self.assertEqual(call(twice, "POST", "/", body=iter(parts)).text(), "abcabc")
        self.assertEqual(call(counted, "POST", "/", body=iter(parts)).text(), "[2, 1]")
        self.assertEqual(call(counted, "POST", "/", body=b"abc").text(), "[3]")
        self.assertEqual(call(taken, "POST", "/", body=iter(parts)).json()["code"], "unreadable_body")


class Answers(unittest.TestCase):
    def answer(self, value):
        return call(lambda request: value, "GET", "/")

    def test_what_a_handler_may_give(self):
        cases = [
            ({"a": "ü"}, "application/json", '{"a":"ü"}'.encode()),
            ([1, 2.0], "application/json", b"[1,2.0]"),
            ("text", "text/plain; charset=utf-8", b"text"),
            (bytearray(b"\xff"), "application/octet-stream", b"\xff"),
            ((part for part in ["a", b"b"]), "application/octet-stream", b"ab"),
        ]
        for value, content_type, body in cases:
            reply = self.answer(value)
            self.assertEqual((reply.status, reply.header("content-type"), reply.body()), (200, content_type, body))
        self.assertEqual((self.answer(None).status, self.answer(None).header("content-length")), (204, None))
        self.assertEqual(self.answer(7).json()["code"], "invalid_response")
        self.assertEqual(self.answer([float("nan")]).json()["code"], "function_error")

    def test_content_length_is_left_out_where_http_forbids_it(self):
        self.assertTrue(Response.text("x").needs_content_length())
        self.assertTrue(Response(200).needs_content_length())
        self.assertFalse(Response(204).needs_content_length())
        self.assertFalse(Response(headers={"Content-Length": "0"}).needs_content_length())
        self.assertFalse(Response.stream([b"x"]).needs_content_length())

    def test_headers_are_kept_in_order(self):
        response = Response.text("made", status=201, headers=[("x-a", "1"), ("x-a", "2"), ("Content-Type", "text/csv")])
        self.assertEqual(response.headers, [("x-a", "1"), ("x-a", "2"), ("Content-Type", "text/csv")])

    def test_parts_are_made_one_by_one(self):
        made = []

        def parts():
            for part in ("a", "b"):
                made.append(part)
                yield part

        sent = iter(Response.stream(parts()).parts())
        self.assertEqual((next(sent), made), (b"a", ["a"]))
        self.assertEqual((next(sent), made), (b"b", ["a", "b"]))

    def test_events(self):
        async def ticks():
            await sleep(1)
            yield Event({"n": 0}, event="tick", id=0)
            yield Event("two\r\nlines", retry=10)

        reply = call(lambda request: Response.events(ticks()), "GET", "/")
        self.assertEqual(reply.header("content-type"), "text/event-stream")
        self.assertEqual(
            reply.parts, [b'id: 0\nevent: tick\ndata: {"n":0}\n\n', b"retry: 10\ndata: two\ndata: lines\n\n"]
        )
        with self.assertRaises(ValueError):
            Event("x", id="1\ndata: y").encode()


class Errors(unittest.TestCase):
    def test_an_error_is_answered_as_a_problem(self):
        def refuse(request):
            raise Error(409, "taken", "it is taken", {"x-why": "because"})

        host = Host()
        reply = host.call(refuse, "GET", "/")
        self.assertEqual((reply.status, reply.json()["code"], reply.header("x-why")), (409, "taken", "because"))
        self.assertEqual(host.lines, [])

    def test_any_exception_is_a_function_error_and_a_line_in_the_log(self):
        def fail(request):
            raise RuntimeError("all\nis lost")

        host = Host()
        reply = host.call(fail, "GET", "/")
        self.assertEqual((reply.status, reply.json()["code"]), (500, "function_error"))
        self.assertEqual(reply.json()["detail"], "all\nis lost")
        (line,) = host.lines
        self.assertTrue(line.startswith("ERROR 500 function_error: all\\nis lost (RuntimeError at "), line)
        self.assertRegex(line, r"\(RuntimeError at test_app\.py:\d+ fail\)$")

    def test_no_memory_is_no_answer(self):
        def grow(request):
            raise MemoryError

        with self.assertRaises(MemoryError):
            Host().call(grow, "GET", "/")

    def test_an_exception_in_a_stream_ends_it_unfinished(self):
        def parts():
            yield "a"
            raise KeyError("b")

        host = Host()
        reply = host.call(lambda request: parts(), "GET", "/")
        self.assertEqual((reply.status, reply.parts, reply.complete), (200, [b"a"], False))
        self.assertTrue(host.lines[0].startswith("ERROR 500 function_error: 'b' (KeyError at "), host.lines)

    def test_a_status_that_is_no_error_is_answered_as_500(self):
        self.assertEqual([Error(status, "odd", "").status for status in (200, 399, 400, 599, 600)], [500, 500, 400, 599, 500])


class Logs(unittest.TestCase):
    def test_a_call_is_one_line(self):
        host = Host()
        host.run(lambda: [log.info("x = 1"), log.warn("a\r\nERROR b"), log.debug(1), log.error("")])
        self.assertEqual(host.lines, ["INFO x = 1", "WARN a\\r\\nERROR b", "DEBUG 1", "ERROR "])


class Waiting(unittest.TestCase):
    def test_gather_gives_results_in_order_and_runs_all_at_once(self):
        order = []

        async def one(name, naps):
            for _ in range(naps):
                await sleep(1)
            order.append(name)
            return name

        async def handle(request):
            return await gather(one("a", 3), one("b", 1), one("c", 0), gather(one("d", 2)))

        self.assertEqual(call(handle, "GET", "/").json(), ["a", "b", "c", ["d"]])
        self.assertEqual(order, ["c", "b", "d", "a"])

    def test_the_first_exception_ends_the_others(self):
        ended = []

        async def long():
            try:
                await sleep(1)
                await sleep(1)
            finally:
                ended.append(True)

        async def fail():
            await sleep(1)
            raise Error.bad_request("no")

        async def handle(request):
            await gather(long(), fail())

        self.assertEqual(call(handle, "GET", "/").json()["code"], "bad_request")
        self.assertEqual(ended, [True])


if __name__ == "__main__":
    unittest.main()
