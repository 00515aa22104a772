/** Models and tensors, on a host of the test's own. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { bf16FromBits, bf16ToBits, f16FromBits, f16ToBits } from "../src/float16.js";
import { HttpError, Model, Tensor } from "../src/index.js";
import { Host } from "../testing.js";

const double = ({ x }) => {
  if (x === undefined) {
    throw new HttpError(400, "invalid_tensor", "the model has no such input");
  }
  return { y: new Tensor(x.toArray().map((one) => 2 * one), x.shape, x.dtype) };
};
const broken = () => {
  throw new Error("it broke");
};
const host = new Host({ models: { double, broken } });

const refused = (status, code) => (error) => error instanceof HttpError && error.status === status && error.code === code;

test("a model runs on tensors and on arrays, and gives its outputs by name", async () => {
  await host.run(() => {
    const outputs = Model.open("double").run({ x: [1, 2.5] });
    assert.deepEqual([outputs.names(), outputs.size, outputs.has("y"), outputs.has("z")], [["y"], 1, true, false]);
    assert.deepEqual(outputs.get("y").data(), Float32Array.of(2, 5));
    assert.equal(outputs.first, outputs.get("y"));
    assert.deepEqual([...outputs].map(([name]) => name), ["y"]);
    assert.throws(() => outputs.get("z"), refused(500, "no_such_output"));
  });
});

test("an output that was not read goes on to the next model, once", async () => {
  await host.run(() => {
    const model = new Model("double");
    const once = model.run({ x: new Tensor([1, 2.5]) }).first;
    assert.deepEqual(model.run({ x: once }).first.toArray(), [4, 10]);
    assert.throws(() => once.data(), /given to a model/);
    const read = model.run({ x: [3] }).first;
    assert.deepEqual(read.toArray(), [6]);
    assert.deepEqual(model.run({ x: read }).first.toArray(), [12]);
    assert.deepEqual(model.run({ x: read }).first.toArray(), [12]);
  });
});

test("what goes wrong with a model has the table's codes", async () => {
  await host.run(() => {
    assert.throws(() => Model.open("nowhere"), refused(500, "model_unavailable"));
    assert.throws(() => new Model("nowhere").run({}), refused(500, "model_unavailable"));
    assert.throws(() => Model.open("double").run({ y: [1] }), refused(400, "invalid_tensor"));
    assert.throws(() => Model.open("broken").run({}), refused(500, "model_failed"));
  });
});

test("elements are little-endian bytes of their type, and back", () => {
  const cases = [
    ["f16", [1, -2.5], "003c00c1"],
    ["bf16", [1, -2.5], "803f20c0"],
    ["f32", [1, -2.5], "0000803f000020c0"],
    ["f64", [1, -2.5], "000000000000f03f00000000000004c0"],
    ["u8", [1, 255], "01ff"],
    ["i32", [1, -2], "01000000feffffff"],
    ["i64", [1, -2], "0100000000000000feffffffffffffff"],
  ];
  for (const [dtype, data, hex] of cases) {
    const tensor = new Tensor(data, [2, 1], dtype);
    assert.deepEqual([tensor.dtype, tensor.shape, tensor.toArray()], [dtype, [2, 1], data]);
    assert.equal(Buffer.from(tensor.bytes()).toString("hex"), hex);
    assert.deepEqual(Tensor.fromBytes(tensor.bytes(), [2], dtype).toArray(), data);
  }
  assert.deepEqual(new Tensor([1n, -(2n ** 63n)], [2], "i64").data(), BigInt64Array.of(1n, -(2n ** 63n)));
});

test("shape and type are those of the data, if not said", () => {
  assert.deepEqual([new Tensor(Uint8Array.of(1, 2)).dtype, new Tensor([1, 2]).shape], ["u8", [2]]);
  assert.deepEqual([new Tensor(new Float64Array(3)).dtype, new Tensor(new BigInt64Array(1)).dtype], ["f64", "i64"]);
  assert.deepEqual(new Tensor([7], []).shape, []);
  assert.deepEqual(new Tensor([], [0, 4]).shape, [0, 4]);
});

test("data that the shape or the type does not fit is invalid_tensor", () => {
  const wrong = [
    () => new Tensor([1, 2], [2, 3]),
    () => new Tensor([1], [-1]),
    () => new Tensor([1], [1.5]),
    () => new Tensor([1], [1], "f8"),
    () => new Tensor([1], [1], "toString"),
    () => new Tensor(["1"], [1]),
    () => new Tensor([null], [1]),
    () => new Tensor([256], [1], "u8"),
    () => new Tensor([1.5], [1], "i32"),
    () => new Tensor([2n ** 63n], [1], "i64"),
    () => new Tensor("text"),
    () => new Tensor(Uint16Array.of(1), [1], "f16"),
    () => new Tensor(Int16Array.of(1)),
    () => Tensor.fromBytes(new Uint8Array(3), [1], "f16"),
  ];
  for (const make of wrong) {
    assert.throws(make, refused(400, "invalid_tensor"), String(make));
  }
});

test("a tensor is a copy of its data", () => {
  const data = Float32Array.of(1, 2);
  const tensor = new Tensor(data);
  data[0] = 9;
  tensor.data()[1] = 9;
  tensor.bytes()[0] = 9;
  assert.deepEqual(tensor.toArray(), [1, 2]);
});

test("16-bit floats: all bits and back, and rounding to even", () => {
  for (let bits = 0; bits < 0x10000; bits += 1) {
    const half = f16FromBits(bits);
    const brain = bf16FromBits(bits);
    assert.ok(Number.isNaN(half) ? Number.isNaN(f16FromBits(f16ToBits(half))) : f16ToBits(half) === bits, `f16 ${bits}`);
    assert.ok(Number.isNaN(brain) ? Number.isNaN(bf16FromBits(bf16ToBits(brain))) : bf16ToBits(brain) === bits, `bf16 ${bits}`);
  }
  const rounded = [[1 + 2 ** -11, 0x3c00], [1 + 3 * 2 ** -11, 0x3c02], [65519, 0x7bff], [65520, 0x7c00], [2 ** -25, 0], [2 ** -24 * 1.5, 2], [2047.9999, 0x6800]];
  for (const [value, bits] of rounded) {
    assert.equal(f16ToBits(value), bits, String(value));
  }
  assert.deepEqual([bf16ToBits(1 + 2 ** -8), bf16ToBits(1 + 3 * 2 ** -8), bf16ToBits(1e39)], [0x3f80, 0x3f82, 0x7f80]);
});
