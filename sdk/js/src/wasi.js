/**
 * The host of a sandbox: `wasi:nn` and `wasi:cli`, by the bindings that ComponentizeJS makes, and HTTP by the engine's own
 * web interfaces. Nothing else of the SDK imports them, so that all else is the same code in a sandbox and in a test.
 */

import { getEnvironment } from "wasi:cli/environment@0.2.10";
import { exit } from "wasi:cli/exit@0.2.10";
import { loadByName } from "wasi:nn/graph@0.2.0-rc-2024-10-28";
import { Tensor } from "wasi:nn/tensor@0.2.0-rc-2024-10-28";

import { appOf } from "./app.js";
import { NnFailure, use } from "./host.js";

const TYPES = { f16: "FP16", bf16: "BF16", f32: "FP32", f64: "FP64", u8: "U8", i32: "I32", i64: "I64" };
const DTYPES = Object.fromEntries(Object.entries(TYPES).map(([dtype, type]) => [type, dtype]));

const webFetch = globalThis.fetch;

class Handle {
  constructor(tensor) {
    this.tensor = tensor;
  }

  shape() {
    return this.tensor.dimensions();
  }

  dtype() {
    return DTYPES[this.tensor.ty()];
  }

  bytes() {
    return this.tensor.data();
  }
}

const wasi = {
  log(line) {
    console.error(line);
  },

  config(name) {
    return getEnvironment().find(([key]) => key === name)?.[1];
  },

  fetch(input, init) {
    return webFetch(input, init);
  },

  open(name) {
    const context = asked(() => loadByName(name).initExecutionContext());
    return {
      run(inputs) {
        const outputs = asked(() => context.compute(inputs.map(([name, handle]) => [name, handle.tensor])));
        return outputs.map(([name, tensor]) => [name, new Handle(tensor)]);
      },
    };
  },

  tensor(shape, dtype, bytes) {
    return new Handle(new Tensor(Uint32Array.from(shape), TYPES[dtype], bytes));
  },

  /** A sandbox without memory ends, and the host says why. */
  exhausted(thrown) {
    if (/out of memory|allocation/.test(thrown instanceof Error ? thrown.message : String(thrown))) {
      exit({ tag: "err" });
    }
  },
};

function asked(call) {
  try {
    return call();
  } catch (thrown) {
    const error = thrown?.payload;
    if (typeof error?.code !== "function") {
      throw thrown;
    }
    throw new NnFailure(error.code(), error.data());
  }
}

/** Lets the engine hand requests to what an app's module exports. */
export function serve(exported) {
  const app = appOf(exported);
  use(wasi);
  addEventListener("fetch", (event) => event.respondWith(app.fetch(event.request)));
}
