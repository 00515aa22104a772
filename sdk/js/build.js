/**
 * From an app to a component: what `weir-js build` does, with esbuild and ComponentizeJS.
 *
 * The app's module is run while the component is built, and what is in memory then is in the component. A sandbox has no
 * files: what a function reads has to be imported.
 */

import { cp, mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const HERE = path.dirname(fileURLToPath(import.meta.url));

/** The version of WASI that ComponentizeJS's engine is built for: its handler of requests exports and imports this one. */
const ENGINE_WASI = "0.2.10";

/** What the engine does not bring along is imported, and the handler that it brings along is exported. */
const WORLD = `package weir:sdk;

world function {
  import wasi:nn/tensor@0.2.0-rc-2024-10-28;
  import wasi:nn/graph@0.2.0-rc-2024-10-28;
  import wasi:nn/inference@0.2.0-rc-2024-10-28;
  import wasi:nn/errors@0.2.0-rc-2024-10-28;
  import wasi:cli/environment@${ENGINE_WASI};
  import wasi:cli/exit@${ENGINE_WASI};
  export wasi:http/incoming-handler@${ENGINE_WASI};
}
`;

/** Why no component could be made. */
export class BuildError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = "BuildError";
  }
}

/**
 * Makes the component `output` of `app`, a JavaScript or TypeScript module whose default export is an `App` or a handler. `wit`
 * is a folder of WIT with the packages of WASI in `deps`, the package's own if not given. Gives the component's number of
 * bytes; what goes wrong is a `BuildError`.
 */
export async function build({ app, output, wit }) {
  const entry = path.resolve(app);
  if (!(await isThere(entry))) {
    throw new BuildError(`there is no file ${app}`);
  }
  const deps = path.join(wit ?? (await ownWit()), "deps");
  if (!(await isThere(path.join(deps, "nn.wit")))) {
    throw new BuildError(`there is no WIT of wasi:nn in ${deps}`);
  }
  const work = await mkdtemp(path.join(tmpdir(), "weir-js-"));
  try {
    await writeWorld(deps, path.join(work, "wit"));
    const source = path.join(work, "function.js");
    await writeFile(source, await bundle(entry));
    const component = await componentized(source, path.join(work, "wit"));
    await mkdir(path.dirname(path.resolve(output)), { recursive: true });
    await writeFile(output, component);
    return component.byteLength;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** The WIT that the package has, or the repository's that it is part of. */
async function ownWit() {
  for (const place of [path.join(HERE, "wit"), path.join(HERE, "../../wit")]) {
    if (await isThere(path.join(place, "deps"))) {
      return place;
    }
  }
  throw new BuildError("the package has no WIT; say where it is (--wit)");
}

async function writeWorld(deps, folder) {
  await cp(deps, path.join(folder, "deps"), { recursive: true });
  await writeFile(path.join(folder, "function.wit"), WORLD);
  for (const name of await readdir(path.join(folder, "deps"))) {
    const file = path.join(folder, "deps", name);
    const text = await readFile(file, "utf8");
    const version = /^package wasi:\w+@(0\.2\.\d+);/m.exec(text)?.[1];
    if (version !== undefined) {
      await writeFile(file, text.replaceAll(version, ENGINE_WASI));
    }
  }
}

async function bundle(app) {
  const { build: esbuild } = await tool("esbuild");
  const contents = `import app from ${JSON.stringify(app)};
import { serve } from ${JSON.stringify(path.join(HERE, "src/wasi.js"))};
serve(app);
`;
  try {
    const made = await esbuild({
      stdin: { contents, resolveDir: path.dirname(app), sourcefile: "weir-entry.js" },
      bundle: true,
      write: false,
      format: "esm",
      target: "es2022",
      platform: "neutral",
      mainFields: ["module", "main"],
      conditions: ["worker", "import"],
      external: ["wasi:*"],
      // So that an app in this repository, or one with a link to the package, has one copy of the SDK.
      alias: { "@weir/sdk": path.join(HERE, "src/index.js") },
      logLevel: "silent",
      absWorkingDir: path.dirname(app),
    });
    return made.outputFiles[0].contents;
  } catch (error) {
    if (!Array.isArray(error?.errors)) {
      throw error;
    }
    const told = error.errors.map(({ text, location: at }) => (at ? `${at.file}:${at.line}:${at.column}: ${text}` : text));
    throw new BuildError(told.join("\n"), { cause: error });
  }
}

async function componentized(sourcePath, witPath) {
  const { componentize } = await tool("@bytecodealliance/componentize-js");
  try {
    const { component } = await componentize({ sourcePath, witPath, worldName: "function" });
    return component;
  } catch (error) {
    throw new BuildError(`the module could not be run into a component: ${error?.message ?? error}`, { cause: error });
  }
}

async function tool(name) {
  try {
    return await import(name);
  } catch (error) {
    throw new BuildError(`${name} is not installed: ${error.message}`, { cause: error });
  }
}

async function isThere(place) {
  try {
    await stat(place);
    return true;
  } catch {
    return false;
  }
}
