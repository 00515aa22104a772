/**
 * A client of a Weir server's API, for Node.
 *
 *     import { Client } from "@weir/sdk/client";
 *
 *     const weir = new Client("http://127.0.0.1:7070");
 *     await weir.models.put("magika", "model.onnx");
 *     await weir.deploy("file-type", "function.wasm", { models: ["magika"] });
 *     const answer = await weir.call("file-type", "/", { body: "some bytes" });
 *
 * Names and fields are those of the server's description (`GET /openapi.json`).
 */

import { readFile } from "node:fs/promises";
import process from "node:process";

/** The operations that the client uses, by their ids in the server's description. */
export const OPERATIONS = Object.freeze({
  "deploy": ["POST", "/v1/functions/{name}/revisions"],
  "list-functions": ["GET", "/v1/functions"],
  "show-function": ["GET", "/v1/functions/{name}"],
  "delete-function": ["DELETE", "/v1/functions/{name}"],
  "split-traffic": ["PUT", "/v1/functions/{name}/traffic"],
  "roll-back": ["POST", "/v1/functions/{name}/rollback"],
  "read-log": ["GET", "/v1/functions/{name}/logs"],
  "list-models": ["GET", "/v1/models"],
  "show-model": ["GET", "/v1/models/{name}"],
  "upload-model": ["PUT", "/v1/models/{name}"],
  "configure-model": ["PUT", "/v1/models/{name}/config"],
  "delete-model": ["DELETE", "/v1/models/{name}"],
  "read-usage": ["GET", "/v1/usage"],
  "read-usage-records": ["GET", "/v1/usage/records"],
  "show-devices": ["GET", "/v1/devices"],
});

/** What the server refused: `status`, a stable `code`, `detail`, and `document`, the whole answer. */
export class Problem extends Error {
  constructor(status, document) {
    const code = document.code ?? "unknown";
    const detail = document.detail ?? document.title ?? `status ${status}`;
    super(`${status} ${code}: ${detail}`);
    this.name = "Problem";
    Object.assign(this, { status, code, detail, document });
  }

  /** The problem that an answer of 400 or more is. Its body is read. */
  static async of(response) {
    const text = await response.text();
    let document;
    try {
      document = JSON.parse(text);
    } catch {
      document = null;
    }
    return new Problem(response.status, document !== null && typeof document === "object" ? document : { detail: text || undefined });
  }
}

/**
 * A server's API. What the server refuses is a `Problem`; a server that cannot be reached, what `fetch` throws.
 *
 * `url`, `key` and `tenant` are `WEIR_URL`, `WEIR_TOKEN` and `WEIR_TENANT` where they are not said. A tenant has to be named with
 * a key of no tenant; calls go to the tenant `default` where none is. `timeout` is in milliseconds. A server whose certificate is of
 * an authority of one's own is trusted by Node's `NODE_EXTRA_CA_CERTS`.
 */
export class Client {
  #key;
  #timeout;

  constructor(url, { key, tenant, timeout = 300_000 } = {}) {
    this.url = (url || process.env.WEIR_URL || "http://127.0.0.1:7070").replace(/\/+$/, "");
    if (!/^https?:$/.test(URL.canParse(this.url) ? new URL(this.url).protocol : "")) {
      throw new TypeError(`\`${this.url}\` is no http or https URL`);
    }
    this.#key = key || process.env.WEIR_TOKEN || undefined;
    this.tenant = tenant || process.env.WEIR_TENANT || undefined;
    this.#timeout = timeout;
    /** The models of the tenant. */
    this.models = new Models(this.#ask.bind(this), this.#pages.bind(this));
  }

  /**
   * Makes a component, a file or its bytes, the newest revision of the function `name`, which gets `traffic` percent of the calls.
   * All else is its configuration, such as `idle_timeout: "5s"`. Gives what became of it: `revision`, `digest`, `url` and more.
   */
  async deploy(name, component, { traffic = 100, ...config } = {}) {
    const form = new FormData();
    form.append("config", new Blob([JSON.stringify(config)], { type: "application/json" }));
    form.append("component", new Blob([await contentOf(component)], { type: "application/wasm" }));
    return this.#ask("deploy", { name, query: { traffic }, body: form });
  }

  /** The tenant's functions, by name. */
  async functions({ prefix, state } = {}) {
    return collected(this.#pages("list-functions", "functions", { prefix, state }));
  }

  /** A function with all that is known about it. */
  async function(name) {
    return this.#ask("show-function", { name });
  }

  /** Deletes a function; calls that run go on to their end. */
  async delete(name) {
    await this.#ask("delete-function", { name });
  }

  /** Sets how calls are split over revisions: their weights by their numbers. */
  async split(name, weights) {
    const traffic = Object.entries(weights).map(([revision, weight]) => ({ revision: Number(revision), weight }));
    return this.#ask("split-traffic", { name, json: { traffic } });
  }

  /** Gives all calls to this revision. */
  async rollBack(name, revision) {
    return this.#ask("roll-back", { name, json: { revision } });
  }

  /** The last lines of a function's log. */
  async logs(name, { tail = 100 } = {}) {
    return (await this.#ask("read-log", { name, query: { tail } })).lines;
  }

  /**
   * Calls a function, by `POST` where there is a body and by `GET` where there is none, if not said. `json` is sent as
   * `application/json`. The answer is the web's `Response`, whatever its status.
   */
  async call(name, path = "/", { method, query, headers, body, json } = {}) {
    const fields = new Headers(headers);
    if (json !== undefined) {
      fields.set("content-type", "application/json");
    }
    const content = json === undefined ? body : JSON.stringify(json);
    const function_ = `/fn/${encodeURIComponent(this.tenant ?? "default")}/${encodeURIComponent(name)}`;
    const target = `${function_}/${path.replace(/^\//, "")}${queryOf(query)}`;
    return this.#send(method ?? (content === undefined ? "GET" : "POST"), target, fields, content);
  }

  /**
   * What was used, as rows: `start`, what it is summed up `by` (such as `function`, `model`), and the sums, such as `calls` and
   * `device_ns`; a sum that is 0 is left out.
   *
   * `bucket` is `minute`, `hour`, `day` or `month`; `since` and `until` are RFC 3339, this month if not said; all else narrows
   * it, such as `function: "rank"`.
   */
  async usage({ by = [], bucket, since, until, ...only } = {}) {
    const query = { by: by.join(",") || undefined, bucket, from: since, to: until, ...only };
    const rows = await collected(this.#pages("read-usage", "rows", query));
    return rows.map((row) => ({ start: row.start, ...row.by, ...row.sums }));
  }

  /** Usage records, one of each call, oldest first; all but `since` and `until` narrows them, as for `usage`. */
  async *usageRecords({ since, until, ...only } = {}) {
    for await (const line of this.#pages("read-usage-records", "records", { from: since, to: until, ...only })) {
      yield line.record;
    }
  }

  /** What the devices do, and for whom. */
  async devices() {
    return this.#ask("show-devices");
  }

  /** What an operation answers with, read as JSON. */
  async #ask(operation, { name = "", query, json, body, type } = {}) {
    const [method, path] = OPERATIONS[operation];
    const headers = new Headers(this.tenant === undefined ? {} : { "weir-tenant": this.tenant });
    if (json !== undefined || type !== undefined) {
      headers.set("content-type", type ?? "application/json");
    }
    const target = path.replace("{name}", encodeURIComponent(name)) + queryOf(query);
    const response = await this.#send(method, target, headers, json === undefined ? body : JSON.stringify(json));
    if (!response.ok) {
      throw await Problem.of(response);
    }
    const text = await response.text();
    return text === "" ? {} : JSON.parse(text);
  }

  /** The items of all pages of a list. */
  async *#pages(operation, field, query) {
    let after;
    do {
      const page = await this.#ask(operation, { query: { ...query, after } });
      yield* page[field];
      after = page.next ?? undefined;
    } while (after !== undefined);
  }

  #send(method, target, headers, body) {
    if (this.#key !== undefined) {
      headers.set("authorization", `Bearer ${this.#key}`);
    }
    const duplex = body instanceof ReadableStream ? { duplex: "half" } : {};
    const signal = AbortSignal.timeout(this.#timeout);
    return fetch(this.url + target, { method, headers, body, signal, redirect: "manual", ...duplex });
  }
}

/** The models of a client's tenant. */
export class Models {
  #ask;
  #pages;

  constructor(ask, pages) {
    this.#ask = ask;
    this.#pages = pages;
  }

  /** Uploads a model, a file or its bytes, in place of the one of that name. Gives its signature and more. */
  async put(name, model, { format = "onnx" } = {}) {
    return this.#ask("upload-model", { name, query: { format }, body: await contentOf(model), type: "application/octet-stream" });
  }

  /** Sets how a model is held and run; what is not said is the default again. */
  async configure(name, config) {
    return this.#ask("configure-model", { name, json: config });
  }

  /** The models that the tenant's functions find, by name: its own, and public ones. */
  async list({ prefix } = {}) {
    return collected(this.#pages("list-models", "models", { prefix }));
  }

  /** A model: signature, configuration, and where it is in memory. */
  async show(name) {
    return this.#ask("show-model", { name });
  }

  /** Deletes a model that no function may use. */
  async delete(name) {
    await this.#ask("delete-model", { name });
  }
}

async function collected(items) {
  const all = [];
  for await (const item of items) {
    all.push(item);
  }
  return all;
}

function contentOf(content) {
  return content instanceof Uint8Array ? content : readFile(content);
}

function queryOf(query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const text = new URLSearchParams(given).toString();
  return text === "" ? "" : `?${text}`;
}
