/** Log lines: each call is one line of the function's log, with its level first. */

import { host } from "./host.js";

/** Line breaks become `\n`, written out, so that no caller can forge a line. */
function line(level, texts) {
  const text = texts.map((one) => (typeof one === "string" ? one : shown(one))).join(" ");
  host().log(`${level} ${text.replaceAll("\r", "\\r").replaceAll("\n", "\\n")}`);
}

function shown(value) {
  if (value instanceof Error) {
    return String(value);
  }
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
}

export const log = {
  debug: (...texts) => line("DEBUG", texts),
  info: (...texts) => line("INFO", texts),
  warn: (...texts) => line("WARN", texts),
  error: (...texts) => line("ERROR", texts),
};
