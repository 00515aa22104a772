/** Tests of functions in plain Node: a host of the test's own making, without Wasm and without a server. */

import type { App, Handler, Result, Tensor, TensorData } from "./src/index.js";

export interface HostOptions {
  /** The function's configuration. */
  config?: Record<string, string>;
  /**
   * The models that it may open. An `HttpError` of less than 500 is what the host says of wrong inputs, anything else thrown a
   * model that failed.
   */
  models?: Record<string, (inputs: Record<string, Tensor>) => Record<string, Tensor | TensorData>>;
  /** Where its requests go. What it throws is a request that found no answer. Without one each is refused. */
  upstream?: (request: Request) => Result | Promise<Result>;
}

export interface CallOptions {
  headers?: HeadersInit;
  body?: BodyInit;
  /** A body of JSON. */
  json?: unknown;
}

/** A host for tests. Only one can be in use at a time. */
export class Host {
  constructor(options?: HostOptions);
  /** The lines logged so far, such as `INFO started`. */
  readonly lines: string[];
  /** One call: what its caller reads. `path` may have a query. The answer has been made to its end. */
  call(app: App | Handler, method: string, path: string, options?: CallOptions): Promise<Reply>;
  /** Runs what is no handler on this host, such as a function that opens a model. */
  run<T>(work: () => T | Promise<T>): Promise<T>;
}

/** What a call's caller reads. */
export class Reply {
  private constructor();
  readonly status: number;
  readonly headers: Headers;
  /** The parts that the body came in. */
  readonly parts: Uint8Array[];
  /** Whether the answer came to its end: one that an error ended did not. */
  readonly complete: boolean;
  bytes(): Uint8Array;
  text(): string;
  json(): any;
}
