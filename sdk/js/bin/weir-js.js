#!/usr/bin/env node
/** The command `weir-js`. */

import { parseArgs } from "node:util";

import { BuildError, build } from "../build.js";

const USAGE = `usage: weir-js build APP [-o FILE] [--wit DIR]

Makes a component of APP, a JavaScript or TypeScript module whose default export is an App or a handler.

  -o, --output FILE  the component [function.wasm]
      --wit DIR      WIT with the packages of WASI in DIR/deps, in place of the package's own`;

async function main() {
  const options = {
    output: { type: "string", short: "o", default: "function.wasm" },
    wit: { type: "string" },
    help: { type: "boolean", short: "h" },
  };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  if (values.help) {
    console.log(USAGE);
    return;
  }
  const [command, app, ...rest] = positionals;
  if (command !== "build" || app === undefined || rest.length > 0) {
    throw new BuildError(USAGE);
  }
  const bytes = await build({ app, output: values.output, wit: values.wit });
  console.log(`${values.output}: ${bytes} bytes`);
}

main().catch((error) => {
  const known = error instanceof BuildError || error?.code?.startsWith?.("ERR_PARSE_ARGS");
  console.error(known ? `weir-js: ${error.message}` : error);
  process.exitCode = 1;
});
