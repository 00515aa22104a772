/** Write Weir functions in JavaScript or TypeScript. What each thing does is said where it is made, in the file of its name. */

/** What an app, a handler's path and its query are to the handler. */
export interface Context {
  /** The path's parameters, percent-decoded. */
  params: Record<string, string>;
  query: URLSearchParams;
  url: URL;
}

/** A part of a streamed answer, sent as soon as it is made. */
export type Part = string | Uint8Array;

/**
 * What a handler gives: a `Response`; nothing, 204; a string, text; bytes; a stream or a generator, sent part by part; anything
 * else that JSON can say, JSON.
 */
export type Result = Response | Uint8Array | ArrayBuffer | ReadableStream | Iterator<Part> | AsyncIterable<Part> | Json;

/** What `JSON.stringify` takes. */
export type Json = string | number | boolean | null | undefined | void | object;

export type Handler = (request: Request, context: Context) => Result | Promise<Result>;

/**
 * A function's routes, tried in the order in which they were added. A segment `{name}` takes any one segment of the path that
 * is not empty, as `params.name`; a last `{name...}` takes all that is left. `get` answers `HEAD` too.
 */
export class App {
  /** Adds a handler for these methods, or for all. A path that does not begin with `/`: a `TypeError`. */
  route(path: string, handler: Handler, methods?: string[]): this;
  any(path: string, handler: Handler): this;
  get(path: string, handler: Handler): this;
  post(path: string, handler: Handler): this;
  put(path: string, handler: Handler): this;
  patch(path: string, handler: Handler): this;
  delete(path: string, handler: Handler): this;
  /** The answer to a request. All that is thrown becomes a problem; what has a status of 500 or more is also logged. */
  fetch(request: Request): Promise<Response>;
}

/** Why a function could not answer. It is answered as `application/problem+json` with `type`, `title`, `status`, `code`, `detail`. */
export class HttpError extends Error {
  /** `status` is 400 to 599; anything else is answered as 500. */
  constructor(status: number, code: string, detail: string, headers?: HeadersInit);
  readonly status: number;
  readonly code: string;
  readonly detail: string;
  readonly headers: HeadersInit | undefined;
  /** 400 `bad_request`: the caller's fault. */
  static badRequest(detail: string): HttpError;
  /** 404 `not_found`. */
  static notFound(detail: string): HttpError;
  /** 405 `method_not_allowed`, with an `allow` header that lists `allowed`, such as `"GET, HEAD"`. */
  static methodNotAllowed(allowed: string): HttpError;
  /** The error itself, or 500 `function_error` with the text of what was thrown. */
  static of(thrown: unknown): HttpError;
}

/** The body's bytes. A body that breaks off: 400 `unreadable_body`. */
export function bytes(request: Request): Promise<Uint8Array>;
/** The body as text. Bytes that are no UTF-8: 400 `invalid_text`. */
export function text(request: Request): Promise<string>;
/** The body as JSON, which nothing has checked. What is no JSON: 400 `invalid_json`. */
export function json<T = any>(request: Request): Promise<T>;

/** An answer whose parts are each sent when they are made; `application/octet-stream` where `init` says nothing else. */
export function stream(parts: Iterable<Part> | AsyncIterable<Part>, init?: ResponseInit): Response;

export interface ServerSentEvent {
  /** A string as it is, anything else as JSON. */
  data: unknown;
  event?: string;
  id?: string | number;
  /** Milliseconds. */
  retry?: number;
}

/** Server-sent events: each a `ServerSentEvent`, or data alone. */
export function events(list: Iterable<unknown> | AsyncIterable<unknown>, init?: ResponseInit): Response;

/** `f16` and `bf16` are read as `Float32Array`, `i64` as `BigInt64Array`. */
export type Dtype = "f16" | "bf16" | "f32" | "f64" | "u8" | "i32" | "i64";
export type TypedArray = Float32Array | Float64Array | Uint8Array | Int32Array | BigInt64Array;
export type TensorData =
  | readonly (number | bigint)[]
  | TypedArray
  | Int8Array
  | Int16Array
  | Uint16Array
  | Uint32Array
  | Uint8ClampedArray
  | BigUint64Array;

/** An array of numbers with a shape and an element type, row-major. Errors: 400 `invalid_tensor`. */
export class Tensor {
  /** `shape` is `[data.length]` if not given; `dtype`, that of the typed array, or `f32`. */
  constructor(data: TensorData, shape?: readonly number[], dtype?: Dtype);
  /** A tensor of the elements' bytes, little-endian. */
  static fromBytes(bytes: Uint8Array, shape: readonly number[], dtype: Dtype): Tensor;
  /** The dimensions; none of a scalar. */
  readonly shape: number[];
  readonly dtype: Dtype;
  /** The elements as a typed array, a copy. */
  data(): TypedArray;
  /** The elements as numbers, as JSON takes them. Those of `i64` beyond 2^53 are rounded. */
  toArray(): number[];
  /** The elements' bytes, little-endian, a copy. */
  bytes(): Uint8Array;
}

/** A model that the function's deployment names. It is opened when it first runs. */
export class Model {
  constructor(name: string);
  /** Opens the model now. One that the function may not use, or that is not there: 500 `model_unavailable`. */
  static open(name: string): Model;
  readonly name: string;
  /**
   * Runs the model once on inputs by their names, and waits for its outputs. An output of another model is passed on without its
   * data being read. An input that the model does not take, lacks, or takes in another shape or type: 400 `invalid_tensor`.
   */
  run(inputs: Record<string, Tensor | TensorData>): Outputs;
}

/** The outputs of one run by their names, in the model's order. Their data stays with the host until it is asked for. */
export class Outputs implements Iterable<[string, Tensor]> {
  private constructor();
  /** The output `name`, or 500 `no_such_output`. */
  get(name: string): Tensor;
  /** The first output, or 500 `no_such_output`. */
  readonly first: Tensor;
  has(name: string): boolean;
  names(): string[];
  readonly size: number;
  [Symbol.iterator](): IterableIterator<[string, Tensor]>;
}

/** The value of `name` in the function's `env`, or `fallback`. Without either: 500 `missing_config`. */
export function config(name: string, fallback?: string): string;

/** As the web's `fetch`, but that what keeps it from being answered is 502 `fetch_failed`. */
export function fetch(input: string | URL | Request, init?: RequestInit): Promise<Response>;

/** Log lines: each call is one line of the function's log, with its level first. */
export const log: {
  debug(...texts: unknown[]): void;
  info(...texts: unknown[]): void;
  warn(...texts: unknown[]): void;
  error(...texts: unknown[]): void;
};
