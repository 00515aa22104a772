/** Routes, answers and errors, on a host of the test's own. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { App, HttpError, bytes, config, events, fetch, json, log, stream, text } from "../src/index.js";
import { Host } from "../testing.js";

const host = () => new Host();

async function problemOf(reply, status, code) {
  assert.deepEqual([reply.status, reply.headers.get("content-type")], [status, "application/problem+json"]);
  const document = reply.json();
  assert.deepEqual([document.type, document.status, document.code], ["about:blank", status, code]);
  assert.ok(document.title !== "" && document.detail !== "");
  return document;
}

test("a route's parameters are decoded, and routes are tried in order", async () => {
  const app = new App()
    .get("/items/first", () => "the first")
    .get("/items/{id}/parts/{part}", (_, { params }) => params)
    .get("/files/{path...}", (_, { params }) => params.path);
  const get = async (path) => (await host().call(app, "GET", path)).text();
  assert.equal(await get("/items/first"), "the first");
  assert.equal(await get("/items/a%20b/parts/7?x=1"), '{"id":"a b","part":"7"}');
  assert.equal(await get("/files/a/b%2Fc"), "a/b/c");
  await problemOf(await host().call(app, "GET", "/items//parts/7"), 404, "not_found");
  await problemOf(await host().call(app, "GET", "/items/%ff/parts/7"), 400, "invalid_parameter");
});

test("a method that a path does not have is told which it has", async () => {
  const app = new App().get("/a", () => "x").post("/a", () => "y");
  const reply = await host().call(app, "PUT", "/a");
  await problemOf(reply, 405, "method_not_allowed");
  assert.equal(reply.headers.get("allow"), "GET, HEAD, POST");
});

test("HEAD is answered by the handler of GET, without a body", async () => {
  const app = new App().get("/a", () => new Response("made", { status: 201, headers: { "x-a": "1" } }));
  const reply = await host().call(app, "HEAD", "/a");
  assert.deepEqual([reply.status, reply.headers.get("x-a"), reply.text()], [201, "1", ""]);
});

test("what a handler gives is an answer", async () => {
  const cases = [
    ["text", 200, "text/plain; charset=utf-8", "text"],
    [undefined, 204, null, ""],
    [{ a: [1] }, 200, "application/json", '{"a":[1]}'],
    [7, 200, "application/json", "7"],
    [Uint8Array.of(104, 105), 200, "application/octet-stream", "hi"],
    [new Response("own", { status: 418, headers: { "content-type": "x/y" } }), 418, "x/y", "own"],
  ];
  for (const [given, status, type, body] of cases) {
    const reply = await host().call(() => given, "GET", "/");
    assert.deepEqual([reply.status, reply.headers.get("content-type"), reply.text()], [status, type, body]);
  }
  await problemOf(await host().call(() => Symbol("s"), "GET", "/"), 500, "function_error");
});

test("parts of a generator are sent one by one, and none is made before it is wanted", async () => {
  let made = 0;
  const app = new App().get("/", async function* () {
    for (; made < 10; made += 1) {
      yield `${made} `;
    }
  });
  const reply = await host().call(app, "GET", "/");
  assert.deepEqual(reply.parts.map((part) => Buffer.from(part).toString()), ["0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "7 ", "8 ", "9 "]);
  made = 0;
  await host().run(async () => {
    const reader = (await app.fetch(new Request("http://function.example/"))).body.getReader();
    await reader.read();
    assert.equal(made, 0, "the second part was made before it was read");
    await reader.cancel();
  });
});

test("what is thrown on the way ends the answer and is logged", async () => {
  const one = host();
  const reply = await one.call(() => stream((function* () {
    yield "a";
    throw new Error("broken");
  })()), "GET", "/");
  assert.deepEqual([reply.status, reply.complete, reply.text()], [200, false, "a"]);
  assert.deepEqual(one.lines, ["ERROR 500 function_error: broken"]);
});

test("events have the form of text/event-stream", async () => {
  const list = [{ id: 0, event: "tick", data: { n: 0 } }, { data: "two\nlines" }, [1]];
  const reply = await host().call(() => events(list), "GET", "/");
  assert.equal(reply.headers.get("content-type"), "text/event-stream");
  assert.equal(reply.text(), 'id: 0\nevent: tick\ndata: {"n":0}\n\ndata: two\ndata: lines\n\ndata: [1]\n\n');
  const forged = await host().call(() => events([{ event: "a\ndata: b", data: 1 }]), "GET", "/");
  assert.equal(forged.complete, false);
});

test("bodies are read as text, JSON and bytes, or the caller is told", async () => {
  const app = new App().post("/json", (request) => json(request)).post("/text", (request) => text(request))
    .post("/bytes", (request) => bytes(request));
  const post = (path, body) => host().call(app, "POST", path, { body });
  assert.deepEqual((await host().call(app, "POST", "/json", { json: { a: "ü" } })).json(), { a: "ü" });
  await problemOf(await post("/json", "{"), 400, "invalid_json");
  await problemOf(await post("/json", Uint8Array.of(34, 255, 34)), 400, "invalid_json");
  assert.equal((await post("/text", "ü")).text(), "ü");
  await problemOf(await post("/text", Uint8Array.of(97, 255)), 400, "invalid_text");
  assert.deepEqual([...(await post("/bytes", Uint8Array.of(0, 255))).bytes()], [0, 255]);
  const broken = new ReadableStream({ pull: (controller) => controller.error(new Error("gone")) });
  await problemOf(await post("/text", broken), 400, "unreadable_body");
});

test("an HttpError is answered as it says; anything else is function_error and a line in the log", async () => {
  const one = host();
  const refused = await one.call(() => { throw new HttpError(409, "taken", "it is taken", { "x-why": "because" }); }, "GET", "/");
  assert.equal((await problemOf(refused, 409, "taken")).detail, "it is taken");
  assert.deepEqual([refused.headers.get("x-why"), one.lines.length], ["because", 0]);
  const failed = await one.call(async () => { throw new Error("all is lost", { cause: new Error("rain") }); }, "GET", "/");
  assert.equal((await problemOf(failed, 500, "function_error")).detail, "all is lost: rain");
  assert.match(one.lines[0], /^ERROR 500 function_error: all is lost: rain/);
  assert.ok(!one.lines[0].includes("\n"));
  await problemOf(await one.call(() => { throw new HttpError(200, "odd", "odd"); }, "GET", "/"), 500, "odd");
  await problemOf(await one.call(() => { throw "text"; }, "GET", "/"), 500, "function_error");
  const headers = { "x-a": "a\r\nb" };
  await problemOf(await one.call(() => { throw new HttpError(409, "taken", "x", headers); }, "GET", "/"), 500, "invalid_response");
});

test("log lines are one line each", async () => {
  const one = host();
  await one.run(() => {
    log.info("two\r\nlines", { a: 1 }, 7);
    log.debug("one");
  });
  assert.deepEqual(one.lines, ['INFO two\\r\\nlines {"a":1} 7', "DEBUG one"]);
});

test("configuration that is missing is told", async () => {
  const one = new Host({ config: { GREETING: "hello", EMPTY: "" } });
  const app = new App().get("/{name}", (_, { params }) => config(params.name));
  assert.equal((await one.call(app, "GET", "/GREETING")).text(), "hello");
  assert.equal((await one.call(app, "GET", "/EMPTY")).text(), "");
  await problemOf(await one.call(app, "GET", "/NOTHING"), 500, "missing_config");
  assert.equal(await one.run(() => config("NOTHING", "fallback")), "fallback");
});

test("fetches go to the test's upstream, and one that finds no answer is fetch_failed", async () => {
  const upstream = async (request) => {
    if (request.url !== "http://up.example/echo") {
      throw new Error("connection refused");
    }
    return new Response(`${request.method} ${await request.text()}`, { status: 404, headers: { "x-reply": request.headers.get("x-ask") } });
  };
  const app = async (_, { query }) => {
    const answer = await fetch(query.get("url"), { method: "PUT", body: "hi", headers: { "x-ask": "yes" } });
    return [answer.status, answer.headers.get("x-reply"), await answer.text()];
  };
  const get = (one, url) => one.call(app, "GET", `/?url=${url}`);
  assert.deepEqual((await get(new Host({ upstream }), "http://up.example/echo")).json(), [404, "yes", "PUT hi"]);
  const document = await problemOf(await get(new Host({ upstream }), "http://down.example/"), 502, "fetch_failed");
  assert.equal(document.detail, "PUT http://down.example/: connection refused");
  await problemOf(await get(host(), "http://up.example/echo"), 502, "fetch_failed");
});

test("mistakes in an app are told when it is made", () => {
  assert.throws(() => new App().get("a", () => ""), TypeError);
  assert.throws(() => new App().get("/a", "text"), TypeError);
  assert.throws(() => config("A"), /there is no host here/);
});
