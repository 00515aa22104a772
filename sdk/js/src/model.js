/** Models by name. The host holds their bytes and runs them; the function holds handles. */

import { HttpError, nnError } from "./errors.js";
import { host } from "./host.js";
import { Tensor } from "./tensor.js";

/** A model that the function's deployment names. It is opened when it first runs, so that one can be made where a module begins. */
export class Model {
  #graph = null;
  #host = null;

  constructor(name) {
    this.name = name;
  }

  /**
   * Opens the model now. A name that the function may not use, or that its tenant does not have: 500 `model_unavailable`; the
   * other errors are in the table of `errors.js`.
   */
  static open(name) {
    const model = new Model(name);
    model.#opened();
    return model;
  }

  #opened() {
    if (this.#graph === null || this.#host !== host()) {
      try {
        [this.#graph, this.#host] = [host().open(this.name), host()];
      } catch (failure) {
        throw nnError(`model \`${this.name}\``, failure);
      }
    }
    return this.#graph;
  }

  /**
   * Runs the model once on inputs by their names, and waits for its outputs. An input is a `Tensor`, or data that
   * `new Tensor(data)` takes. An output of another model is passed on without its data being read.
   *
   * An input that the model does not take, lacks, or takes in another shape or type: 400 `invalid_tensor`; the other errors are
   * those of `open`.
   */
  run(inputs) {
    const graph = this.#opened();
    const tensors = Object.entries(inputs).map(([name, one]) => [name, one instanceof Tensor ? one : new Tensor(one)]);
    try {
      const outputs = graph.run(tensors.map(([name, tensor]) => [name, tensor.give()]));
      return new Outputs(this.name, outputs.map(([name, handle]) => [name, Tensor.ofHandle(handle)]));
    } catch (failure) {
      throw nnError(`model \`${this.name}\``, failure);
    }
  }
}

/** The outputs of one run by their names, in the model's order. Their data stays with the host until it is asked for. */
export class Outputs {
  #model;
  #tensors;

  constructor(model, tensors) {
    this.#model = model;
    this.#tensors = new Map(tensors);
  }

  /** The output `name`, or 500 `no_such_output`. */
  get(name) {
    const tensor = this.#tensors.get(name);
    if (tensor === undefined) {
      const names = this.names().map((one) => `\`${one}\``).join(", ") || "none";
      throw new HttpError(500, "no_such_output", `model \`${this.#model}\` gave no output \`${name}\`, only ${names}`);
    }
    return tensor;
  }

  /** The first output, or 500 `no_such_output`. */
  get first() {
    for (const tensor of this.#tensors.values()) {
      return tensor;
    }
    throw new HttpError(500, "no_such_output", `model \`${this.#model}\` gave no output`);
  }

  has(name) {
    return this.#tensors.has(name);
  }

  names() {
    return [...this.#tensors.keys()];
  }

  get size() {
    return this.#tensors.size;
  }

  [Symbol.iterator]() {
    return this.#tensors[Symbol.iterator]();
  }
}
