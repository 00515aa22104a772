/** Requests of the function's own, to the hosts that its deployment allows (`egress`). */

import { HttpError } from "./errors.js";
import { host } from "./host.js";

/** As the web's `fetch`, but that what keeps it from being answered is 502 `fetch_failed`. An answer is an answer, whatever its status. */
export async function fetch(input, init) {
  try {
    return await host().fetch(input, init);
  } catch (error) {
    const url = typeof input === "string" || input instanceof URL ? String(input) : input?.url;
    const method = init?.method ?? input?.method ?? "GET";
    const why = error instanceof Error ? (error.cause?.message ?? error.message) : String(error);
    throw new HttpError(502, "fetch_failed", `${method} ${url}: ${why || "there was no answer"}`);
  }
}
