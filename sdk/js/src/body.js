/** Bodies of requests, read whole. What the caller did wrong is an `HttpError` of 400. */

import { HttpError } from "./errors.js";

/** The body's bytes. A body that breaks off: 400 `unreadable_body`. */
export async function bytes(request) {
  try {
    return new Uint8Array(await request.arrayBuffer());
  } catch (error) {
    throw new HttpError(400, "unreadable_body", `the body could not be read: ${error?.message ?? error}`);
  }
}

/** The body as text. Bytes that are no UTF-8: 400 `invalid_text`. */
export async function text(request) {
  return decode(await bytes(request), "invalid_text");
}

/** The body as JSON. What is no JSON: 400 `invalid_json`. */
export async function json(request) {
  const body = decode(await bytes(request), "invalid_json");
  try {
    return JSON.parse(body);
  } catch (error) {
    throw new HttpError(400, "invalid_json", `the body is no JSON: ${error.message}`);
  }
}

function decode(body, code) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    throw new HttpError(400, code, "the body is no UTF-8");
  }
}
