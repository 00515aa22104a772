/** From an app to a component: what `weir-js build` does. */

/** Why no component could be made. */
export class BuildError extends Error {}

export interface BuildOptions {
  /** A JavaScript or TypeScript module whose default export is an `App` or a handler. */
  app: string;
  /** The component's file. */
  output: string;
  /** A folder of WIT with the packages of WASI in `deps`; the package's own if not given. */
  wit?: string;
}

/** Makes a component, and gives its number of bytes. What goes wrong is a `BuildError`. */
export function build(options: BuildOptions): Promise<number>;
