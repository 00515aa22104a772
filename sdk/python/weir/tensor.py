"""Tensors: a shape, an element type, and data that stays with the host."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from math import exp
from operator import index
from typing import Any, cast

from ._interface import Data, current
from .errors import Error

#: Element types by their names: the code of `array` (f16 and bf16 have none) and the bytes of an element.
_TYPES = {
    "f16": (None, 2),
    "bf16": (None, 2),
    "f32": ("f", 4),
    "f64": ("d", 8),
    "u8": ("B", 1),
    "i32": ("i", 4),
    "i64": ("q", 8),
}

#: Element types by the formats of the buffer protocol, as `struct` has them, with the size of an element.
_FORMATS = {
    ("e", 2): "f16",
    ("f", 4): "f32",
    ("d", 8): "f64",
    ("B", 1): "u8",
    ("?", 1): "u8",
    ("i", 4): "i32",
    ("l", 4): "i32",
    ("l", 8): "i64",
    ("q", 8): "i64",
}


class Tensor:
    """A model's input or output, row-major.

    Making one copies the data to the host; reading one copies it back, once. Giving it to a model gives the host's copy away,
    so that an output which goes on to another model is never copied here. A tensor that was made here, or was read, can be
    given again.
    """

    def __init__(self, data: Any, shape: Sequence[int] | None = None, dtype: str | None = None) -> None:
        """A tensor of `data`: a number, a list (nested as the shape), bytes (the elements, little-endian), or anything with
        the buffer protocol, such as an `array.array`, a `memoryview` or a numpy array.

        `dtype` is one of f16, bf16, f32, f64, u8, i32, i64; if not said, that of `data`: u8 for bytes, f32 for numbers and
        lists. `shape` is that of `data` if not said; otherwise the product of its dimensions, 1 for `[]`, must be the number
        of elements. Errors: 400 `invalid_tensor`.
        """
        if dtype is not None and dtype not in _TYPES:
            raise _invalid(f"there is no element type `{dtype}`, only {', '.join(_TYPES)}")
        own, dtype, content = _content(data, dtype)
        count = len(content) // _TYPES[dtype][1]
        if len(content) % _TYPES[dtype][1]:
            raise _invalid(f"{len(content)} bytes are no whole number of {dtype}")
        self._dtype = dtype
        self._shape = _check(own if shape is None else shape, count)
        self._content: bytes | None = content
        self._host: Data | None = current().tensor(list(self._shape), dtype, content)
        self._read = False

    @classmethod
    def _of_host(cls, host: Data) -> Tensor:
        tensor = cls.__new__(cls)
        tensor._dtype, tensor._shape = host.dtype(), tuple(host.shape())
        tensor._content, tensor._host, tensor._read = None, host, False
        return tensor

    def _give(self) -> Data:
        """The host's copy, which is not this tensor's any more."""
        host, self._host = self._host, None
        if host is None:
            host = current().tensor(list(self._shape), self._dtype, self.tobytes())
        return host

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self._shape

    @property
    def dtype(self) -> str:
        """The type of the elements, such as `f32`."""
        return self._dtype

    def tobytes(self) -> bytes:
        """The elements' bytes, little-endian. An output that was given to a model before it was read: `ValueError`."""
        if self._host is not None and not self._read:
            self._content, self._read = self._host.data(), True
        if self._content is None:
            raise ValueError("the tensor was given to a model before it was read")
        return self._content

    def toarray(self) -> array[Any]:
        """The elements in one row; f16 and bf16 as 32-bit floats."""
        return decode(self.tobytes(), self._dtype)

    def tolist(self) -> Any:
        """The elements as lists, nested as the shape; one number where that is `()`."""
        return _nest(self.toarray().tolist(), self._shape)

    def item(self) -> Any:
        """The only element; of a tensor with more or fewer: 400 `invalid_tensor`."""
        elements = self.toarray()
        if len(elements) != 1:
            raise _invalid(f"expected one element, got the shape {list(self._shape)}")
        return elements[0]

    def numpy(self) -> Any:
        """A numpy array of the shape, where numpy is there; bf16 as 32-bit floats."""
        import numpy

        if self._dtype == "f16":
            return numpy.frombuffer(self.tobytes(), "<f2").reshape(self._shape)
        elements = self.toarray()
        return numpy.frombuffer(elements, f"={elements.typecode}").reshape(self._shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        elements = self.numpy()
        return elements if dtype is None else elements.astype(dtype)

    def __buffer__(self, flags: int) -> memoryview:
        """The elements, for `memoryview` and all that reads buffers (Python 3.12 and later); f16 and bf16 as 32-bit floats."""
        elements: Any = memoryview(self.toarray())
        if len(self._shape) == 1 or 0 in self._shape:
            return cast(memoryview, elements)
        return cast(memoryview, elements.cast("B").cast(elements.format, self._shape))

    def __len__(self) -> int:
        """The size of the first dimension."""
        if not self._shape:
            raise TypeError("the tensor has no dimension")
        return self._shape[0]

    def __repr__(self) -> str:
        return f"<Tensor {self._dtype} {list(self._shape)}>"


def argmax(values: Tensor | Sequence[float]) -> int:
    """The index of the largest value, the first of equals. No values: `ValueError`."""
    elements = _elements(values)
    return max(range(len(elements)), key=elements.__getitem__)


def topk(values: Tensor | Sequence[float], count: int) -> list[tuple[int, float]]:
    """The indexes and values of the `count` largest values, the largest first, and of equals the first."""
    elements = _elements(values)
    order = sorted(range(len(elements)), key=elements.__getitem__, reverse=True)
    return [(index, elements[index]) for index in order[:count]]


def softmax(values: Tensor | Sequence[float]) -> list[float]:
    """Scores (logits) as probabilities, which add up to 1."""
    elements = _elements(values)
    highest = max(elements, default=0.0)
    powers = [exp(element - highest) for element in elements]
    total = sum(powers)
    return [power / total for power in powers]


def _elements(values: Tensor | Sequence[float]) -> Sequence[float]:
    return values.toarray() if isinstance(values, Tensor) else values


def decode(content: bytes, dtype: str) -> array[Any]:
    """Little-endian bytes as elements; f16 and bf16 as 32-bit floats."""
    if dtype == "f16":
        return array("f", struct.unpack(f"<{len(content) // 2}e", content))
    if dtype == "bf16":
        wide = bytearray(2 * len(content))
        wide[2::4], wide[3::4] = content[::2], content[1::2]
        return decode(bytes(wide), "f32")
    elements = array(_TYPES[dtype][0] or "B")
    elements.frombytes(content)
    return _little_endian(elements)


def encode(elements: Iterable[Any], dtype: str) -> bytes:
    """Numbers as little-endian bytes. What the element type cannot hold: 400 `invalid_tensor`."""
    try:
        if dtype == "f16":
            numbers = list(elements)
            return struct.pack(f"<{len(numbers)}e", *numbers)
        if dtype == "bf16":
            return _bf16(encode(elements, "f32"))
        return _little_endian(array(_TYPES[dtype][0] or "B", elements)).tobytes()
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise _invalid(f"the data is not all {dtype}: {error}") from None


def _bf16(content: bytes) -> bytes:
    """32-bit floats as bf16: the upper halves, rounded to the nearest, ties to even; a NaN stays one."""
    rounded = bytearray()
    for (bits,) in struct.iter_unpack("<I", content):
        if bits & 0x7FFFFFFF > 0x7F800000:
            upper = bits >> 16 | 0x40
        else:
            upper = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        rounded += upper.to_bytes(2, "little")
    return bytes(rounded)


def _little_endian(elements: array[Any]) -> array[Any]:
    if sys.byteorder == "big":
        elements.byteswap()
    return elements


def _content(data: Any, dtype: str | None) -> tuple[Sequence[int], str, bytes]:
    """The shape, the element type and the little-endian bytes of what a tensor can be made of."""
    if isinstance(data, Tensor):
        return _as(dtype, data.dtype, data.shape, data.tobytes())
    if isinstance(data, (list, tuple)):
        flat: list[Any] = []
        shape = _flatten(data, flat)
        return shape, dtype or "f32", encode(flat, dtype or "f32")
    if isinstance(data, (int, float)):
        return (), dtype or "f32", encode([data], dtype or "f32")
    try:
        view = memoryview(data)
    except TypeError:
        raise _invalid(f"no tensor can be made of a {type(data).__name__}") from None
    if isinstance(data, (bytes, bytearray)) or view.format in ("c", "b"):
        dtype = dtype or "u8"
        return [view.nbytes // _TYPES[dtype][1]], dtype, view.tobytes()
    native = "<=@" if sys.byteorder == "little" else "=@"
    own = _FORMATS.get((view.format.lstrip(native), view.itemsize))
    if own is None:
        raise _invalid(f"there is no element type for the buffer's format `{view.format}`")
    content = view.tobytes()
    if sys.byteorder == "big":
        content = b"".join(content[at : at + view.itemsize][::-1] for at in range(0, len(content), view.itemsize))
    return _as(dtype, own, list(view.shape or ()), content)


def _as(wanted: str | None, own: str, shape: Sequence[int], content: bytes) -> tuple[Sequence[int], str, bytes]:
    """The bytes of elements of one type as those of another."""
    if wanted is None or wanted == own:
        return shape, own, content
    return shape, wanted, encode(decode(content, own), wanted)


def _flatten(data: Any, flat: list[Any]) -> list[int]:
    """Adds the elements of nested lists to `flat`, and gives their shape."""
    if not isinstance(data, (list, tuple)):
        flat.append(data)
        return []
    if not any(isinstance(part, (list, tuple)) for part in data):
        flat.extend(data)
        return [len(data)]
    shapes = [_flatten(part, flat) for part in data]
    if any(shape != shapes[0] for shape in shapes):
        raise _invalid("the lists are not all of one shape")
    return [len(data), *shapes[0]]


def _check(shape: Sequence[int], count: int) -> tuple[int, ...]:
    """The shape, if it holds exactly `count` elements."""
    try:
        sizes = tuple(index(size) for size in shape)
    except TypeError:
        raise _invalid(f"a shape is a list of whole numbers, not {shape!r}") from None
    if any(not 0 <= size < 1 << 32 for size in sizes):
        raise _invalid(f"shape {list(sizes)} has a dimension that is not in 0 to 2^32")
    needed = _product(sizes)
    if needed != count:
        raise _invalid(f"shape {list(sizes)} needs {needed} elements, given {count}")
    return sizes


def _nest(elements: list[Any], shape: Sequence[int]) -> Any:
    """The elements of one row as lists that are nested as the shape."""
    if len(shape) < 2:
        return elements if shape else elements[0]
    width = len(elements) // max(shape[0], 1)
    return [_nest(elements[row * width : (row + 1) * width], shape[1:]) for row in range(shape[0])]


def _product(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _invalid(detail: str) -> Error:
    return Error(400, "invalid_tensor", detail)
