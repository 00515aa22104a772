/** A client of a Weir server's API, for Node. Names and fields are those of the server's description (`GET /openapi.json`). */

/** An object of JSON, with the fields that the server's description says. */
export type Document = Record<string, any>;

/** The operations that the client uses, by their ids in the server's description: method and path. */
export const OPERATIONS: Readonly<Record<string, readonly [method: string, path: string]>>;

/** What the server refused. */
export class Problem extends Error {
  constructor(status: number, document: Document);
  readonly status: number;
  readonly code: string;
  readonly detail: string;
  readonly document: Document;
  /** The problem that an answer of 400 or more is. Its body is read. */
  static of(response: Response): Promise<Problem>;
}

export interface ClientOptions {
  /** `WEIR_TOKEN` if not said. */
  key?: string;
  /** `WEIR_TENANT` if not said. It has to be named with a key of no tenant; calls go to `default` where none is. */
  tenant?: string;
  /** Milliseconds. */
  timeout?: number;
}

/** A function's configuration, with any other field that the server's description has. */
export interface DeployOptions {
  models?: string[];
  env?: Record<string, string>;
  egress?: string[];
  limits?: Document;
  /** Percent of the calls that the new revision gets; 100 if not said. */
  traffic?: number;
  [field: string]: unknown;
}

export interface ClientCallOptions {
  /** `POST` where there is a body and `GET` where there is none, if not said. */
  method?: string;
  query?: Record<string, string | number | undefined>;
  headers?: HeadersInit;
  body?: BodyInit;
  /** A body of JSON. */
  json?: unknown;
}

export interface Span {
  /** RFC 3339; this month if not said. */
  since?: string;
  until?: string;
}

export interface UsageOptions extends Span {
  by?: string[];
  bucket?: "minute" | "hour" | "day" | "month";
  /** What it is narrowed by, such as `function: "rank"`. */
  [dimension: string]: string | string[] | undefined;
}

/** A server's API. What the server refuses is a `Problem`; a server that cannot be reached, what `fetch` throws. */
export class Client {
  /** `url` is `WEIR_URL`, or `http://127.0.0.1:7070`, if not said. */
  constructor(url?: string, options?: ClientOptions);
  readonly url: string;
  readonly tenant: string | undefined;
  /** The models of the tenant. */
  readonly models: Models;
  /** Makes a component, a file or its bytes, the newest revision of a function. */
  deploy(name: string, component: string | URL | Uint8Array, options?: DeployOptions): Promise<Document>;
  /** The tenant's functions, by name. */
  functions(options?: { prefix?: string; state?: string }): Promise<Document[]>;
  function(name: string): Promise<Document>;
  /** Deletes a function; calls that run go on to their end. */
  delete(name: string): Promise<void>;
  /** Sets how calls are split over revisions: their weights by their numbers. */
  split(name: string, weights: Record<number, number>): Promise<Document>;
  /** Gives all calls to this revision. */
  rollBack(name: string, revision: number): Promise<Document>;
  /** The last lines of a function's log. */
  logs(name: string, options?: { tail?: number }): Promise<Document[]>;
  /** Calls a function. The answer is given whatever its status. */
  call(name: string, path?: string, options?: ClientCallOptions): Promise<Response>;
  /** What was used, as rows: `start`, what it is summed up `by`, and the sums; a sum that is 0 is left out. */
  usage(options?: UsageOptions): Promise<Document[]>;
  /** Usage records, one of each call, oldest first. */
  usageRecords(options?: Span & Record<string, string | undefined>): AsyncGenerator<Document, void>;
  /** What the devices do, and for whom. */
  devices(): Promise<Document>;
}

/** The models of a client's tenant. */
export class Models {
  private constructor();
  /** Uploads a model, a file or its bytes, in place of the one of that name. */
  put(name: string, model: string | URL | Uint8Array, options?: { format?: string }): Promise<Document>;
  /** Sets how a model is held and run; what is not said is the default again. */
  configure(name: string, config: Document): Promise<Document>;
  /** The models that the tenant's functions find, by name: its own, and public ones. */
  list(options?: { prefix?: string }): Promise<Document[]>;
  show(name: string): Promise<Document>;
  /** Deletes a model that no function may use. */
  delete(name: string): Promise<void>;
}
