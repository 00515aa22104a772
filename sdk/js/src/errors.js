/**
 * What goes wrong in a function, and the answer it becomes: an `application/problem+json` body (RFC 9457) with a stable `code`.
 *
 * | from | status | code |
 * | --- | --- | --- |
 * | `json`, `text` | 400 | `invalid_json`, `invalid_text` |
 * | a body that could not be read | 400 | `unreadable_body` |
 * | a shape or an element type that does not fit; `wasi:nn` `invalid-argument` | 400 | `invalid_tensor` |
 * | `wasi:nn` `not-found`, `security` | 500 | `model_unavailable` |
 * | `wasi:nn` `invalid-encoding`, `unsupported-operation` | 500 | `model_unsupported` |
 * | `wasi:nn` `runtime-error`, `unknown` | 500 | `model_failed` |
 * | `wasi:nn` `too-large`, `timeout` | 503, `retry-after: 1` | `model_too_large`, `model_timeout` |
 * | an output asked for that the model does not have | 500 | `no_such_output` |
 * | no route for the path; for the method | 404; 405 with `allow` | `not_found`; `method_not_allowed` |
 * | a fetch that found no answer | 502 | `fetch_failed` |
 * | a value missing from the function's configuration | 500 | `missing_config` |
 * | an error's header that HTTP does not allow | 500 | `invalid_response` |
 * | anything else that is thrown | 500 | `function_error` |
 */

import { NnFailure } from "./host.js";

const TITLES = {
  400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
  405: "Method Not Allowed", 406: "Not Acceptable", 408: "Request Timeout", 409: "Conflict", 410: "Gone",
  411: "Length Required", 412: "Precondition Failed", 413: "Content Too Large", 414: "URI Too Long",
  415: "Unsupported Media Type", 422: "Unprocessable Content", 429: "Too Many Requests", 500: "Internal Server Error",
  501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
};

const NN = {
  "invalid-argument": [400, "invalid_tensor", "invalid argument"],
  "not-found": [500, "model_unavailable", "not found"],
  security: [500, "model_unavailable", "not allowed"],
  "invalid-encoding": [500, "model_unsupported", "invalid encoding"],
  "unsupported-operation": [500, "model_unsupported", "unsupported operation"],
  "runtime-error": [500, "model_failed", "runtime error"],
  unknown: [500, "model_failed", "unknown error"],
  "too-large": [503, "model_too_large", "too large"],
  timeout: [503, "model_timeout", "timed out"],
};

/** Why a function could not answer: an HTTP status, a stable code for programs, a sentence for people, and headers. */
export class HttpError extends Error {
  /** `status` is 400 to 599; anything else is answered as 500. `headers` is what the web's `Headers` takes. */
  constructor(status, code, detail, headers) {
    super(`${status} ${code}: ${detail}`);
    this.name = "HttpError";
    this.status = Number.isInteger(status) && status >= 400 && status <= 599 ? status : 500;
    this.code = code;
    this.detail = detail;
    this.headers = headers;
  }

  /** 400 `bad_request`: the caller's fault. */
  static badRequest(detail) {
    return new HttpError(400, "bad_request", detail);
  }

  /** 404 `not_found`. */
  static notFound(detail) {
    return new HttpError(404, "not_found", detail);
  }

  /** 405 `method_not_allowed`, with an `allow` header that lists `allowed`, such as `"GET, HEAD"`. */
  static methodNotAllowed(allowed) {
    return new HttpError(405, "method_not_allowed", `use ${allowed}`, { allow: allowed });
  }

  /** The error itself, or 500 `function_error` with the text of what was thrown. */
  static of(thrown) {
    if (thrown instanceof HttpError) {
      return thrown;
    }
    const error = new HttpError(500, "function_error", told(thrown));
    error.cause = thrown;
    return error;
  }
}

/** The text of what was thrown, with its causes. */
function told(thrown) {
  const texts = [];
  for (let one = thrown, depth = 0; one !== undefined && one !== null && depth < 8; one = one.cause, depth += 1) {
    texts.push(one instanceof Error ? one.message || one.name : String(one));
  }
  return texts.join(": ") || "it failed without saying why";
}

/** The answer that an error becomes. */
export function problem(error) {
  const document = {
    type: "about:blank",
    title: TITLES[error.status] ?? `Status ${error.status}`,
    status: error.status,
    code: error.code,
    detail: error.detail,
  };
  const headers = new Headers(error.headers);
  headers.set("content-type", "application/problem+json");
  return new Response(JSON.stringify(document), { status: error.status, headers });
}

/** What a failure of `wasi:nn` about `what` is, by the table at the head of this file; any other error is itself. */
export function nnError(what, failure) {
  if (!(failure instanceof NnFailure)) {
    return failure;
  }
  const [status, code, meaning] = NN[failure.code] ?? NN.unknown;
  const headers = status === 503 ? { "retry-after": "1" } : undefined;
  return new HttpError(status, code, `${what}: ${failure.message || meaning}`, headers);
}
