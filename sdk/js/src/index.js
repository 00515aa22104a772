/**
 * Write Weir functions in JavaScript or TypeScript.
 *
 * | file | what |
 * | --- | --- |
 * | `app.js`, `response.js`, `body.js` | routes; what handlers give; what they get |
 * | `errors.js` | what goes wrong, and the answer it becomes |
 * | `model.js`, `tensor.js`, `float16.js` | models, their inputs and outputs |
 * | `fetch.js`, `config.js`, `log.js` | requests of the function's own, its configuration, its log |
 * | `host.js`, `wasi.js` | what the SDK asks of its host; the host of a sandbox |
 */

export { App } from "./app.js";
export { bytes, json, text } from "./body.js";
export { config } from "./config.js";
export { HttpError } from "./errors.js";
export { fetch } from "./fetch.js";
export { log } from "./log.js";
export { Model, Outputs } from "./model.js";
export { events, stream } from "./response.js";
export { Tensor } from "./tensor.js";
