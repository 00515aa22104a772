/** The function's configuration. */

import { HttpError } from "./errors.js";
import { host } from "./host.js";

/**
 * The value of `name` in the function's configuration (its `env`); `fallback`, if one is given, where there is none.
 * Without either: 500 `missing_config`.
 */
export function config(name, fallback) {
  const value = host().config(name) ?? fallback;
  if (value === undefined) {
    throw new HttpError(500, "missing_config", `the function's \`env\` has no value \`${name}\``);
  }
  return value;
}
