/** From what a handler gives to the web's `Response`. */

import { HttpError } from "./errors.js";
import { host } from "./host.js";
import { log } from "./log.js";

const BYTES = "application/octet-stream";
const TEXT = "text/plain; charset=utf-8";

/**
 * The answer that a handler's result is: a `Response` itself; nothing, 204; a string, text; bytes; a generator, sent part by
 * part; anything else, JSON. What JSON cannot say: a `TypeError`.
 */
export function responseOf(given) {
  if (given instanceof Response) {
    return given;
  }
  if (given === undefined || given === null) {
    return new Response(null, { status: 204 });
  }
  if (typeof given === "string") {
    return new Response(given, { headers: { "content-type": TEXT } });
  }
  if (given instanceof ArrayBuffer || given instanceof Uint8Array) {
    return new Response(given, { headers: { "content-type": BYTES } });
  }
  if (given instanceof ReadableStream) {
    return new Response(given, { headers: { "content-type": BYTES } });
  }
  if (typeof given[Symbol.asyncIterator] === "function" || isGenerator(given)) {
    return stream(given);
  }
  const text = JSON.stringify(given);
  if (text === undefined) {
    throw new TypeError(`a handler cannot answer with a ${typeof given}`);
  }
  return new Response(text, { headers: { "content-type": "application/json" } });
}

function isGenerator(given) {
  return typeof given[Symbol.iterator] === "function" && typeof given.next === "function";
}

/**
 * An answer whose parts, strings or `Uint8Array`s, are each sent when they are made. `init` is that of `Response`, with
 * `content-type: application/octet-stream` where it says nothing else. What is thrown on the way is logged, and ends the
 * answer unfinished.
 */
export function stream(parts, init = {}) {
  const headers = new Headers(init.headers);
  if (!headers.has("content-type")) {
    headers.set("content-type", BYTES);
  }
  return new Response(streamOf(parts), { ...init, headers });
}

/** Server-sent events: each is `{ data, event, id, retry }`, or data alone; data that is no string is sent as JSON. */
export function events(list, init = {}) {
  const headers = new Headers(init.headers);
  headers.set("content-type", "text/event-stream");
  if (!headers.has("cache-control")) {
    headers.set("cache-control", "no-cache");
  }
  return stream(mapped(list, event), { ...init, headers });
}

async function* mapped(list, change) {
  for await (const one of list) {
    yield change(one);
  }
}

function event(given) {
  const fields = typeof given === "object" && given !== null && "data" in given ? given : { data: given };
  const data = typeof fields.data === "string" ? fields.data : JSON.stringify(fields.data);
  let text = "";
  for (const name of ["id", "event", "retry"]) {
    const value = fields[name];
    if (value !== undefined && value !== null) {
      if (/[\r\n\0]/.test(String(value))) {
        throw new TypeError(`an event's ${name} has one line`);
      }
      text += `${name}: ${value}\n`;
    }
  }
  for (const line of String(data).split(/\r\n|\r|\n/)) {
    text += `data: ${line}\n`;
  }
  return `${text}\n`;
}

function streamOf(parts) {
  const encoder = new TextEncoder();
  const iterator = (parts[Symbol.asyncIterator] ?? parts[Symbol.iterator]).call(parts);
  const pull = async (controller) => {
    try {
      for (;;) {
        const { done, value } = await iterator.next();
        if (done) {
          controller.close();
          return;
        }
        if (typeof value !== "string" && !(value instanceof Uint8Array)) {
          throw new TypeError("a part of an answer is a string or a Uint8Array");
        }
        const part = typeof value === "string" ? encoder.encode(value) : value;
        if (part.byteLength > 0) {
          controller.enqueue(part);
          return;
        }
      }
    } catch (error) {
      host().exhausted(error);
      log.error(HttpError.of(error).message);
      controller.error(error);
    }
  };
  const cancel = async () => {
    await iterator.return?.();
  };
  // Nothing is made before it can be sent.
  return new ReadableStream({ pull, cancel }, { highWaterMark: 0 });
}
