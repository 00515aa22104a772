/** Routes, and the one way from a request to its answer. */

import { HttpError, problem } from "./errors.js";
import { host } from "./host.js";
import { log } from "./log.js";
import { responseOf } from "./response.js";

/**
 * A function's routes. A handler gets the web's `Request` and `{ params, query, url }`, and may be async.
 *
 * Routes are tried in the order in which they were added. A segment `{name}` takes any one segment of the path that is not
 * empty, percent-decoded, as `params.name`; a last `{name...}` takes all that is left. `get` answers `HEAD` too.
 */
export class App {
  #routes = [];

  /** Adds a handler for these methods, or for all. A path that does not begin with `/`: a `TypeError`. */
  route(path, handler, methods = []) {
    if (!path.startsWith("/")) {
      throw new TypeError(`a route begins with \`/\`, not \`${path}\``);
    }
    if (typeof handler !== "function") {
      throw new TypeError(`the handler of \`${path}\` is no function`);
    }
    this.#routes.push({ pattern: path.split("/"), methods: methods.map((name) => name.toUpperCase()), handler });
    return this;
  }

  any(path, handler) {
    return this.route(path, handler);
  }

  get(path, handler) {
    return this.route(path, handler, ["GET", "HEAD"]);
  }

  post(path, handler) {
    return this.route(path, handler, ["POST"]);
  }

  put(path, handler) {
    return this.route(path, handler, ["PUT"]);
  }

  patch(path, handler) {
    return this.route(path, handler, ["PATCH"]);
  }

  delete(path, handler) {
    return this.route(path, handler, ["DELETE"]);
  }

  /** The answer to a request. All that is thrown becomes a problem; what has a status of 500 or more is also logged. */
  async fetch(request) {
    try {
      const url = new URL(request.url);
      const { handler, params } = this.#find(request.method, url.pathname);
      const response = responseOf(await handler(request, { params, query: url.searchParams, url }));
      return request.method === "HEAD" ? headOf(response) : response;
    } catch (thrown) {
      return answerTo(thrown);
    }
  }

  #find(method, path) {
    const segments = path.split("/");
    const allowed = new Set();
    for (const { pattern, methods, handler } of this.#routes) {
      const params = match(pattern, segments);
      if (params === null) {
        continue;
      }
      if (methods.length === 0 || methods.includes(method)) {
        return { handler, params };
      }
      methods.forEach((name) => allowed.add(name));
    }
    if (allowed.size > 0) {
      throw HttpError.methodNotAllowed([...allowed].join(", "));
    }
    throw HttpError.notFound(`there is nothing at ${path}`);
  }
}

/** The app itself, or one that has this handler for everything. Neither: a `TypeError`. */
export function appOf(given) {
  if (typeof given?.fetch === "function") {
    return given;
  }
  if (typeof given !== "function") {
    throw new TypeError("the module's default export is neither an App nor a handler");
  }
  return new App().any("/{path...}", given);
}

/** The problem that what was thrown becomes, with a line in the log where the fault is not the caller's. */
function answerTo(thrown) {
  host().exhausted(thrown);
  const error = HttpError.of(thrown);
  if (error.status >= 500) {
    log.error(describe(error));
  }
  try {
    return problem(error);
  } catch (wrong) {
    return problem(new HttpError(500, "invalid_response", `the answer has a header that HTTP does not allow: ${wrong.message}`));
  }
}

/** The error as one line: what it says, and, if it is no `HttpError`, where it was thrown. */
function describe(error) {
  const stack = error.cause?.stack;
  const places = typeof stack === "string" ? stack.split("\n").map((line) => line.trim()).filter(Boolean) : [];
  return places.length > 0 ? `${error.message} (${error.cause.name}: ${places.slice(0, 8).join(" < ")})` : error.message;
}

async function headOf(response) {
  await response.body?.cancel();
  return new Response(null, { status: response.status, headers: response.headers });
}

function match(pattern, segments) {
  const params = {};
  for (const [index, part] of pattern.entries()) {
    if (part.startsWith("{") && part.endsWith("...}")) {
      params[part.slice(1, -4)] = decode(segments.slice(index).join("/"));
      return params;
    }
    const segment = segments[index];
    if (segment === undefined) {
      return null;
    }
    if (part.startsWith("{") && part.endsWith("}") && segment !== "") {
      params[part.slice(1, -1)] = decode(segment);
    } else if (part !== segment) {
      return null;
    }
  }
  return pattern.length === segments.length ? params : null;
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw new HttpError(400, "invalid_parameter", `the path has \`${segment}\`, which is no UTF-8`);
  }
}
