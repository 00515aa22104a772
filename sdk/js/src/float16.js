/** The 16-bit floats, which JavaScript has no typed arrays for everywhere: their bits to numbers and back, rounded to even. */

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);
const double = new DataView(new ArrayBuffer(8));

/** A number of binary16, of its bits. */
export function f16FromBits(half) {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 0x1f) {
    return fraction === 0 ? sign * Infinity : NaN;
  }
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** The bits of the binary16 number that is nearest to `value`. */
export function f16ToBits(value) {
  if (Number.isNaN(value)) {
    return 0x7e00;
  }
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (size >= 65520) {
    return sign | 0x7c00;
  }
  if (size < 2 ** -14) {
    // What rounds up to the smallest normal number has its bits, too.
    return sign | even(size * 2 ** 24);
  }
  double.setFloat64(0, size);
  const exponent = ((double.getUint32(0) >> 20) & 0x7ff) - 1023;
  return sign | (((exponent + 14) << 10) + even(size * 2 ** (10 - exponent)));
}

/** The nearest integer, the even one of two. */
function even(value) {
  const below = Math.floor(value);
  const rest = value - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below;
}

/** A number of bfloat16, of its bits. */
export function bf16FromBits(half) {
  bits[0] = half << 16;
  return float[0];
}

/** The bits of the bfloat16 number that is nearest to `value`, by way of f32. */
export function bf16ToBits(value) {
  if (Number.isNaN(value)) {
    return 0x7fc0;
  }
  float[0] = value;
  const whole = bits[0];
  return ((whole + 0x7fff + ((whole >>> 16) & 1)) >>> 16) & 0xffff;
}
