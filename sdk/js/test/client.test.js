/**
 * The client, against a server of the test's own, and against the description of a real one.
 *
 * `WEIR_OPENAPI` names a file with that description: what `weir openapi` prints.
 */

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { afterEach, beforeEach, test } from "node:test";

import { Client, OPERATIONS, Problem } from "../client.js";

let server;
let client;
let asked;
let answers;

beforeEach(async () => {
  [asked, answers] = [[], []];
  server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) {
      parts.push(part);
    }
    const url = new URL(request.url, "http://server.example");
    const query = Object.fromEntries(url.searchParams);
    asked.push({ method: request.method, path: url.pathname, query, headers: request.headers, body: Buffer.concat(parts) });
    const [status, document] = answers.shift() ?? [200, {}];
    response.writeHead(status, { "x-reply": "yes" });
    response.end(typeof document === "string" ? document : JSON.stringify(document));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  client = new Client(`http://127.0.0.1:${server.address().port}/`, { key: "weir_a_b", tenant: "acme" });
});

afterEach(() => {
  server.closeAllConnections();
  server.close();
});

test("key and tenant are sent", async () => {
  await client.devices();
  const [{ method, path, headers }] = asked;
  assert.deepEqual([method, path, headers.authorization, headers["weir-tenant"]], ["GET", "/v1/devices", "Bearer weir_a_b", "acme"]);
});

test("a deploy is a form", async () => {
  answers.push([201, { revision: 1 }]);
  const component = Buffer.from("\0asm\r\n--");
  const config = { models: ["m"], env: { A: "1" }, idle_timeout: "5s" };
  assert.deepEqual(await client.deploy("rank", component, { ...config, traffic: 10 }), { revision: 1 });
  const [{ method, path, query, headers, body }] = asked;
  assert.deepEqual([method, path, query], ["POST", "/v1/functions/rank/revisions", { traffic: "10" }]);
  const form = await new Response(body, { headers: { "content-type": headers["content-type"] } }).formData();
  assert.deepEqual([...form.keys()], ["config", "component"]);
  assert.deepEqual(JSON.parse(await form.get("config").text()), config);
  assert.deepEqual(Buffer.from(await form.get("component").arrayBuffer()), component);
});

test("a file that is not there is told, and nothing is sent", async () => {
  await assert.rejects(client.models.put("m", "/nowhere/model.onnx"), { code: "ENOENT" });
  assert.deepEqual(asked, []);
});

test("all pages of a list are read", async () => {
  answers.push([200, { functions: [{ function: "a" }], next: "a" }], [200, { functions: [{ function: "b" }], next: null }]);
  const names = (await client.functions({ prefix: "x" })).map((one) => one.function);
  assert.deepEqual(names, ["a", "b"]);
  assert.deepEqual(asked.map(({ query }) => query), [{ prefix: "x" }, { prefix: "x", after: "a" }]);
});

test("usage is rows", async () => {
  const row = { start: "2026-12-01T00:00:00Z", by: { function: "rank" }, sums: { calls: 3 } };
  answers.push([200, { rows: [row], next: null }]);
  const rows = await client.usage({ by: ["function", "model"], bucket: "day", since: "2026-12-01T00:00:00Z", outcome: "answered" });
  assert.deepEqual(rows, [{ start: "2026-12-01T00:00:00Z", function: "rank", calls: 3 }]);
  assert.deepEqual(asked[0].query, { by: "function,model", bucket: "day", from: "2026-12-01T00:00:00Z", outcome: "answered" });
});

test("a call's answer is given whatever its status", async () => {
  answers.push([409, { code: "taken", detail: "it is taken" }], [200, "text"]);
  const answer = await client.call("rank", "/a/b", { query: { q: "1 2" }, json: { x: 1 }, headers: { "x-ask": "yes" } });
  const [{ method, path, query, headers, body }] = asked;
  assert.deepEqual([method, path, query, String(body)], ["POST", "/fn/acme/rank/a/b", { q: "1 2" }, '{"x":1}']);
  assert.deepEqual([headers["content-type"], headers["x-ask"]], ["application/json", "yes"]);
  assert.deepEqual([answer.status, answer.headers.get("x-reply")], [409, "yes"]);
  assert.equal((await Problem.of(answer)).code, "taken");
  assert.equal(await (await client.call("rank")).text(), "text");
  assert.deepEqual([asked[1].method, asked[1].path], ["GET", "/fn/acme/rank/"]);
});

test("refusals are problems", async () => {
  answers.push([404, { code: "not_found", detail: "no such function", retryable: false }], [502, "<html>"]);
  await assert.rejects(client.function("a/b"), (problem) => {
    assert.ok(problem instanceof Problem);
    assert.deepEqual([problem.status, problem.code, problem.detail], [404, "not_found", "no such function"]);
    assert.deepEqual([problem.message, problem.document.retryable], ["404 not_found: no such function", false]);
    return true;
  });
  assert.equal(asked[0].path, "/v1/functions/a%2Fb");
  await assert.rejects(client.devices(), { status: 502, code: "unknown", detail: "<html>" });
});

test("settings are those of the environment", async () => {
  const before = { ...process.env };
  Object.assign(process.env, { WEIR_URL: client.url, WEIR_TOKEN: "weir_c_d", WEIR_TENANT: "" });
  try {
    await new Client().call("rank");
  } finally {
    process.env = before;
  }
  const [{ path, headers }] = asked;
  assert.deepEqual([path, headers.authorization, "weir-tenant" in headers], ["/fn/default/rank/", "Bearer weir_c_d", false]);
});

test("a URL that is none is told", () => {
  assert.throws(() => new Client("127.0.0.1:7070"), TypeError);
  assert.throws(() => new Client("ftp://server.example"), TypeError);
});

const description = process.env.WEIR_OPENAPI;

test("every operation, and what is sent, is in the server's description", { skip: !description && "WEIR_OPENAPI names no description" }, async () => {
  const { paths } = JSON.parse(await readFile(description, "utf8"));
  const span = { since: "2026-12-01T00:00:00Z", until: "2026-12-02T00:00:00Z" };
  const nothing = { functions: [], models: [], rows: [], records: [], lines: [] };
  const component = new Uint8Array();
  const sends = {
    "deploy": () => client.deploy("f", component, { traffic: 1 }),
    "list-functions": () => client.functions({ prefix: "f", state: "ready" }),
    "show-function": () => client.function("f"),
    "delete-function": () => client.delete("f"),
    "split-traffic": () => client.split("f", { 1: 1 }),
    "roll-back": () => client.rollBack("f", 1),
    "read-log": () => client.logs("f", { tail: 1 }),
    "list-models": () => client.models.list({ prefix: "m" }),
    "show-model": () => client.models.show("f"),
    "upload-model": () => client.models.put("f", component),
    "configure-model": () => client.models.configure("f", { pin: true }),
    "delete-model": () => client.models.delete("f"),
    "read-usage": () => client.usage({ by: ["model"], bucket: "day", function: "f", ...span }),
    "read-usage-records": () => client.usageRecords({ id: "1-1", ...span }).next(),
    "show-devices": () => client.devices(),
  };
  assert.deepEqual(Object.keys(sends), Object.keys(OPERATIONS));
  for (const [id, send] of Object.entries(sends)) {
    answers.push([200, nothing]);
    await send();
    const { method, path, query, headers, body } = asked.shift();
    const operation = paths[path.replace(/^(\/v1\/(functions|models))\/f/, "$1/{name}")]?.[method.toLowerCase()];
    assert.equal(operation?.operationId, id);
    const described = (operation.parameters ?? []).filter((one) => one.in === "query").map((one) => one.name);
    assert.deepEqual(Object.keys(query).filter((name) => !described.includes(name)), [], id);
    if (headers["content-type"] !== undefined || body.length > 0) {
      assert.ok(headers["content-type"].split(";")[0] in operation.requestBody.content, id);
    }
  }
});
