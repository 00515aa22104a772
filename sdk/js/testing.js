/**
 * Tests of functions in plain Node: a host of the test's own making, without Wasm and without a server.
 *
 *     import { Host } from "@weir/sdk/testing";
 *     import app from "./app.js";
 *
 *     const host = new Host({ models: { name: ({ x }) => ({ y: x.toArray().map((one) => 2 * one) }) } });
 *     const reply = await host.call(app, "POST", "/score", { json: [1, 2.5] });
 *     assert.deepEqual(reply.json(), [2, 5]);
 */

import { appOf } from "./src/app.js";
import { HttpError } from "./src/errors.js";
import { NnFailure, use } from "./src/host.js";
import { responseOf } from "./src/response.js";
import { Tensor } from "./src/tensor.js";

/**
 * A host for tests: the function's configuration, the models that it may open, the upstream that its requests go to.
 *
 * A model gets its inputs by their names, and gives its outputs: tensors, or what `new Tensor(…)` takes. An `HttpError` of less
 * than 500 is what the host says of wrong inputs, anything else thrown a model that failed. The upstream gets the request, and
 * gives what a handler may give; what it throws is a request that found no answer. Without an upstream each is refused.
 *
 * `lines` are the lines logged so far, such as `INFO started`. Only one host can be in use at a time.
 */
export class Host {
  lines = [];
  #config;
  #models;
  #upstream;
  #uses = 0;

  constructor({ config = {}, models = {}, upstream } = {}) {
    this.#config = new Map(Object.entries(config));
    this.#models = new Map(Object.entries(models));
    this.#upstream = upstream;
  }

  /**
   * One call: what its caller reads. `path` may have a query; `json` is a body of JSON; `body`, what `Request` takes. The answer
   * has been made to its end.
   */
  call(app, method, path, { headers, body, json } = {}) {
    return this.run(async () => {
      const given = new Headers(headers);
      if (json !== undefined && !given.has("content-type")) {
        given.set("content-type", "application/json");
      }
      const content = json === undefined ? body : JSON.stringify(json);
      const duplex = content instanceof ReadableStream ? { duplex: "half" } : {};
      const request = new Request(new URL(path, "http://function.example"), { method, headers: given, body: content, ...duplex });
      const response = await appOf(app).fetch(request);
      return Reply.of(response);
    });
  }

  /** Runs what is no handler on this host, such as a function that opens a model. */
  async run(work) {
    const before = use(this);
    if (before !== null && before !== this) {
      use(before);
      throw new Error("another host is in use; await its call first");
    }
    this.#uses += 1;
    try {
      return await work();
    } finally {
      this.#uses -= 1;
      if (this.#uses === 0) {
        use(null);
      }
    }
  }

  log(line) {
    this.lines.push(line);
  }

  config(name) {
    return this.#config.get(name);
  }

  async fetch(input, init) {
    if (this.#upstream === undefined) {
      throw new TypeError("the test's host has no upstream");
    }
    try {
      return responseOf(await this.#upstream(new Request(input, init)));
    } catch (error) {
      throw new TypeError(error instanceof HttpError ? error.detail : error.message, { cause: error });
    }
  }

  open(name) {
    const model = this.#models.get(name);
    if (model === undefined) {
      throw new NnFailure("not-found", "the test's host has no such model");
    }
    return { run: (inputs) => run(model, inputs) };
  }

  tensor(shape, dtype, bytes) {
    return { shape: () => shape, dtype: () => dtype, bytes: () => bytes };
  }

  exhausted() {}
}

function run(model, inputs) {
  let outputs;
  try {
    outputs = model(Object.fromEntries(inputs.map(([name, handle]) => [name, Tensor.ofHandle(handle)])));
  } catch (error) {
    const wrong = error instanceof HttpError && error.status < 500;
    const said = error instanceof HttpError ? error.detail : String(error?.message ?? error);
    throw new NnFailure(wrong ? "invalid-argument" : "runtime-error", said);
  }
  return Object.entries(outputs).map(([name, one]) => [name, (one instanceof Tensor ? one : new Tensor(one)).give()]);
}

/** What a call's caller reads: `status`, `headers`, and the `parts` that the body came in. An answer that an error ended is not `complete`. */
export class Reply {
  constructor(status, headers, parts, complete) {
    this.status = status;
    this.headers = headers;
    this.parts = parts;
    this.complete = complete;
  }

  static async of(response) {
    const parts = [];
    let complete = true;
    try {
      for await (const part of response.body ?? []) {
        parts.push(part);
      }
    } catch {
      complete = false;
    }
    return new Reply(response.status, response.headers, parts, complete);
  }

  bytes() {
    return new Uint8Array(Buffer.concat(this.parts));
  }

  text() {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.bytes());
  }

  json() {
    return JSON.parse(this.text());
  }
}
