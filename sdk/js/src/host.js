/**
 * What the SDK asks of its host, and which host that is. In a sandbox it is `wasi.js`, which the build puts in; in a test,
 * the one of `testing.js`.
 *
 * A host has: `log(line)`; `config(name)`, a string or undefined; `fetch(request)`, as the web's; `open(name)`, a graph;
 * `tensor(shape, dtype, bytes)`, a handle; `exhausted(error)`, called where memory ran out.
 * A graph has `run([[name, handle], …])`, which gives the same of its outputs; a handle has `shape()`, `dtype()`, `bytes()`.
 * `open`, `run` and `tensor` throw `NnFailure`.
 */

let current = null;

/** Makes `host` the one that is asked; gives the one before. */
export function use(host) {
  const before = current;
  current = host;
  return before;
}

/** The host that is asked. Without one: an `Error`. */
export function host() {
  if (current === null) {
    throw new Error("there is no host here: a handler runs in a sandbox, or in a test with a Host of @weir/sdk/testing");
  }
  return current;
}

/** What `wasi:nn` refuses: a code of its `error-code`, and what the host says of it. */
export class NnFailure extends Error {
  constructor(code, data) {
    super(data);
    this.code = code;
  }
}
