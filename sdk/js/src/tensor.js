/** Tensors: what models take and give. */

import { HttpError, nnError } from "./errors.js";
import { bf16FromBits, bf16ToBits, f16FromBits, f16ToBits } from "./float16.js";
import { host } from "./host.js";

/** The element types: the array that their data is read as, bytes of one, what integers may be, and 16-bit floats' bits. */
const DTYPES = {
  f16: { array: Float32Array, size: 2, toBits: f16ToBits, fromBits: f16FromBits },
  bf16: { array: Float32Array, size: 2, toBits: bf16ToBits, fromBits: bf16FromBits },
  f32: { array: Float32Array, size: 4 },
  f64: { array: Float64Array, size: 8 },
  u8: { array: Uint8Array, size: 1, least: 0, most: 255 },
  i32: { array: Int32Array, size: 4, least: -(2 ** 31), most: 2 ** 31 - 1 },
  i64: { array: BigInt64Array, size: 8, least: -(2n ** 63n), most: 2n ** 63n - 1n },
};

const invalid = (detail) => new HttpError(400, "invalid_tensor", detail);

/**
 * An array of numbers with a shape and an element type: `f16`, `bf16`, `f32`, `f64`, `u8`, `i32` or `i64`.
 *
 * An output's data stays with the host until it is asked for. One that was given to a model as an input without ever having
 * been read is gone then; all others may be given again.
 */
export class Tensor {
  #shape;
  #dtype;
  #bytes;
  #handle = null;

  /**
   * `data` is an array of numbers or a typed array, in row-major order. `shape` is `[data.length]` if not given; `dtype`, that
   * of the typed array, or `f32`. Data that the shape or the type does not fit: 400 `invalid_tensor`.
   */
  constructor(data, shape, dtype) {
    if (data instanceof Handle) {
      this.#handle = data.handle;
      return;
    }
    if (!Array.isArray(data) && (!ArrayBuffer.isView(data) || data instanceof DataView)) {
      throw invalid("a tensor's data is an array of numbers");
    }
    this.#dtype = dtype ?? dtypeOf(data);
    const type = typeOf(this.#dtype);
    this.#shape = checked(shape ?? [data.length], data.length);
    this.#bytes = encode(data, type, this.#dtype);
  }

  /** A tensor of the elements' bytes, little-endian. A number of bytes that does not fit: 400 `invalid_tensor`. */
  static fromBytes(bytes, shape, dtype) {
    const type = typeOf(dtype);
    if (bytes.byteLength % type.size !== 0) {
      throw invalid(`${bytes.byteLength} bytes are no whole number of ${dtype}`);
    }
    const tensor = new Tensor([], [0], dtype);
    tensor.#shape = checked(shape, bytes.byteLength / type.size);
    tensor.#bytes = bytes.slice();
    return tensor;
  }

  /** The dimensions; none of a scalar. */
  get shape() {
    this.#shape ??= Array.from(this.#held().shape());
    return [...this.#shape];
  }

  /** The element type's name. */
  get dtype() {
    this.#dtype ??= this.#held().dtype();
    return this.#dtype;
  }

  /**
   * The elements as a typed array of their type, in row-major order: a `Float32Array` of `f16`, `bf16` and `f32`, a
   * `BigInt64Array` of `i64`. It is a copy.
   */
  data() {
    const type = typeOf(this.dtype);
    const bytes = this.#read();
    const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    return type.fromBits ? Float32Array.from(new Uint16Array(buffer), type.fromBits) : new type.array(buffer);
  }

  /** The elements as an array of numbers, in row-major order, as JSON takes it. Those of `i64` beyond 2^53 are rounded. */
  toArray() {
    return Array.from(this.data(), Number);
  }

  /** The elements' bytes, little-endian. It is a copy. */
  bytes() {
    return this.#read().slice();
  }

  /** The tensor of a host's handle. For the SDK. */
  static ofHandle(handle) {
    return new Tensor(new Handle(handle));
  }

  /** A handle to give away: the one that there is, or a new one of the data. For the SDK. */
  give() {
    if (this.#bytes !== undefined) {
      try {
        return host().tensor(this.shape, this.dtype, this.#bytes);
      } catch (failure) {
        throw nnError("a tensor", failure);
      }
    }
    const handle = this.#held();
    this.#handle = null;
    return handle;
  }

  #read() {
    if (this.#bytes === undefined) {
      // Shape and type are wanted once the handle is given away.
      [this.#shape, this.#dtype] = [this.shape, this.dtype];
      this.#bytes = this.#held().bytes();
    }
    return this.#bytes;
  }

  #held() {
    if (this.#handle === null) {
      throw new Error("the tensor was given to a model; what is wanted of it later has to be read before");
    }
    return this.#handle;
  }
}

/** What `Tensor.ofHandle` gives the constructor. */
class Handle {
  constructor(handle) {
    this.handle = handle;
  }
}

function typeOf(dtype) {
  if (!Object.hasOwn(DTYPES, dtype)) {
    throw invalid(`there is no element type \`${dtype}\`, only ${Object.keys(DTYPES).join(", ")}`);
  }
  return DTYPES[dtype];
}

function dtypeOf(data) {
  if (Array.isArray(data)) {
    return "f32";
  }
  const name = ["f32", "f64", "u8", "i32", "i64"].find((name) => data instanceof DTYPES[name].array);
  if (name === undefined) {
    throw invalid(`a ${data.constructor.name} is of no element type; say which \`dtype\``);
  }
  return name;
}

function checked(shape, length) {
  let count = 1;
  for (const dimension of shape) {
    if (!Number.isInteger(dimension) || dimension < 0 || dimension >= 2 ** 32) {
      throw invalid(`a dimension is a number from 0 to 2^32 - 1, not ${dimension}`);
    }
    count *= dimension;
  }
  if (count !== length) {
    throw invalid(`the shape [${shape.join(", ")}] needs ${count} elements, given ${length}`);
  }
  return Array.from(shape);
}

function encode(data, type, dtype) {
  if (type.toBits) {
    if (data instanceof Uint16Array) {
      throw invalid(`a Uint16Array could be bits or numbers; give bits of ${dtype} to Tensor.fromBytes`);
    }
    return new Uint8Array(Uint16Array.from(data, (value) => type.toBits(number(value))).buffer);
  }
  if (data instanceof type.array) {
    return new Uint8Array(data.slice().buffer);
  }
  const element = type.least === undefined ? number : (value) => integer(value, type, dtype);
  const array = new type.array(data.length);
  for (let index = 0; index < data.length; index += 1) {
    array[index] = element(data[index]);
  }
  return new Uint8Array(array.buffer);
}

function number(value) {
  if (typeof value !== "number" && typeof value !== "bigint") {
    throw invalid(`an element is a number, not ${value === null ? "null" : `a ${typeof value}`}`);
  }
  return Number(value);
}

function integer(value, type, dtype) {
  const whole = typeof value === "bigint" || Number.isInteger(value);
  if (!whole || value < type.least || value > type.most) {
    throw invalid(`${typeof value === "object" ? "an object" : value} is no ${dtype}`);
  }
  return typeof type.least === "bigint" ? BigInt(value) : Number(value);
}
