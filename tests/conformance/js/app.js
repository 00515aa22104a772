/** The conformance guest in JavaScript: every row of the table in tests/conformance/README.md, with the SDK. */

import { App, HttpError, Model, Tensor, bytes, config, events, fetch, json, log, stream, text } from "@weir/sdk";

const app = new App();

app.any("/echo", async (request, { query, url }) => ({
  method: request.method,
  path: url.pathname,
  query: Object.fromEntries(query),
  // Headers of the web are one value a name.
  "x-one": request.headers.get("x-one")?.split(", ") ?? [],
  body: await text(request),
}));

app.get("/items/{id}/parts/{part}", (_, { params }) => params);

app.get("/headers", () => {
  const headers = new Headers({ "content-type": "text/plain; charset=utf-8" });
  headers.append("x-a", "1");
  headers.append("x-a", "2");
  return new Response("made", { status: 201, headers });
});

app.get("/empty", () => new Response(null, { status: 204 }));

app.post("/bytes", async (request) => (await bytes(request)).reverse());

app.post("/greet", async (request) => {
  const { name } = await json(request);
  return { greeting: `Hello, ${name}!` };
});

app.post("/text", async (request) => ({ characters: [...(await text(request))].length }));

app.get("/stream", (_, { query }) => {
  function* lines() {
    for (let n = 0; n < Number(query.get("n")); n += 1) {
      yield `line ${n}\n`;
    }
  }
  return stream(lines(), { headers: { "content-type": "text/plain; charset=utf-8" } });
});

app.post("/upper", async function* (request) {
  const reader = request.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    yield value.map((byte) => (byte >= 97 && byte <= 122 ? byte - 32 : byte));
  }
});

app.get("/events", (_, { query }) => {
  function* ticks() {
    for (let n = 0; n < Number(query.get("n")); n += 1) {
      yield { id: n, event: "tick", data: { n } };
    }
  }
  return events(ticks());
});

app.post("/double", async (request, { query }) => {
  const model = Model.open(query.get("model") ?? "double");
  const outputs = model.run({ [query.get("input") ?? "x"]: await json(request) });
  const output = query.has("output") ? outputs.get(query.get("output")) : outputs.first;
  return output.toArray();
});

app.post("/chain", async (request) => {
  const model = Model.open("double");
  const once = model.run({ x: new Tensor(await json(request)) }).first;
  return model.run({ x: once }).first.toArray();
});

app.post("/tensor", async (request) => {
  const { dtype, shape, data } = await json(request);
  const tensor = new Tensor(data, shape, dtype);
  const hex = [...tensor.bytes()].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return { dtype: tensor.dtype, shape: tensor.shape, data: tensor.toArray(), bytes: hex };
});

app.get("/refuse", () => {
  throw new HttpError(409, "taken", "it is taken", { "x-why": "because" });
});

app.get("/fail", () => {
  throw new Error("all is lost");
});

app.get("/config/{name}", (_, { params }) => ({ value: config(params.name) }));

app.get("/log", () => {
  log.debug("one");
  log.info("two\nlines");
  log.warn("three");
  log.error("four");
});

app.post("/fetch", async (request) => {
  const { url, method, body, header } = await json(request);
  const answer = await fetch(url, { method, body, headers: { "x-ask": header } });
  return { status: answer.status, body: await answer.text(), "x-reply": answer.headers.get("x-reply") };
});

app.get("/relay", async (_, { query }) => (await fetch(query.get("url"))).body);

app.post("/both", async (request) => {
  const { urls } = await json(request);
  const answers = await Promise.all(urls.map((url) => fetch(url)));
  return answers.map((answer) => answer.status);
});

app.get("/random", () => {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return { random: [...random].map((byte) => byte.toString(16).padStart(2, "0")).join("") };
});

app.get("/clock", () => ({ now: Date.now() }));

app.get("/spin", () => {
  for (;;) {}
});

app.get("/grow", () => {
  const held = [];
  for (;;) {
    held.push(new Uint8Array(1 << 20).fill(1));
  }
});

export default app;
