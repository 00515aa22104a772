"""The conformance guest in Python: every row of the table in tests/conformance/README.md, with the SDK."""

import os
import time

from weir import App, Error, Event, Model, Response, Tensor, config, fetch, fetch_all, log

app = App()


@app.route("/echo")
def echo(request):
    return {
        "method": request.method,
        "path": request.path,
        "query": dict(request.query),
        "x-one": request.headers.all("x-one"),
        "body": request.text(),
    }


@app.get("/items/{id}/parts/{part}")
def part_of_item(request):
    return request.params


@app.get("/headers")
def headers(request):
    return Response.text("made", status=201, headers=[("x-a", "1"), ("x-a", "2")])


@app.get("/empty")
def empty(request):
    return Response(204)


@app.post("/bytes")
def reverse(request):
    return request.body()[::-1]


@app.post("/greet")
def greet(request):
    return {"greeting": f"Hello, {request.json()['name']}!"}


@app.post("/text")
def text(request):
    return {"characters": len(request.text())}


@app.get("/stream")
def stream(request):
    lines = (f"line {n}\n" for n in range(int(request.query["n"])))
    return Response.stream(lines, "text/plain; charset=utf-8")


@app.post("/upper")
def upper(request):
    return (part.upper() for part in request.chunks())


@app.get("/events")
def events(request):
    return Response.events(Event({"n": n}, event="tick", id=n) for n in range(int(request.query["n"])))


@app.post("/double")
def double(request):
    model = Model(request.query.get("model", "double"))
    outputs = model.run({request.query.get("input", "x"): Tensor(request.json())})
    output = outputs[request.query["output"]] if "output" in request.query else outputs.first
    return output.tolist()


@app.post("/chain")
def chain(request):
    model = Model("double")
    once = model.run({"x": Tensor(request.json())}).first
    return model.run({"x": once}).first.tolist()


@app.post("/tensor")
def tensor(request):
    given = request.json()
    made = Tensor(given["data"], given["shape"], given["dtype"])
    return {"dtype": made.dtype, "shape": made.shape, "data": list(made.toarray()), "bytes": made.tobytes().hex()}


@app.get("/refuse")
def refuse(request):
    raise Error(409, "taken", "it is taken", {"x-why": "because"})


@app.get("/fail")
def fail(request):
    raise RuntimeError("all is lost")


@app.get("/config/{name}")
def value(request):
    return {"value": config(request.params["name"])}


@app.get("/log")
def lines(request):
    log.debug("one")
    log.info("two\nlines")
    log.warn("three")
    log.error("four")


@app.post("/fetch")
def ask(request):
    given = request.json()
    answer = fetch(
        given["url"], method=given["method"], body=given["body"], headers={"x-ask": given["header"]}
    )
    return {"status": answer.status, "body": answer.text(), "x-reply": answer.header("x-reply")}


@app.get("/relay")
def relay(request):
    return fetch(request.query["url"]).chunks()


@app.post("/both")
def both(request):
    return [answer.status for answer in fetch_all(request.json()["urls"])]


@app.get("/random")
def random(request):
    return {"random": os.urandom(16).hex()}


@app.get("/clock")
def clock(request):
    return {"now": time.time_ns() // 1_000_000}


@app.get("/spin")
def spin(request):
    while True:
        pass


@app.get("/grow")
def grow(request):
    held = []
    while True:
        held.append(bytes(1 << 20))
