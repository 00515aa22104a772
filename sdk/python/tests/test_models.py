"""Tensors and models."""

import math
import struct
import sys
import unittest
from array import array

from weir import Error, Model, Tensor, argmax, softmax, topk
from weir.testing import Host

try:
    import numpy
except ImportError:
    numpy = None


def code(function):
    try:
        function()
    except Error as error:
        return error.code
    return None


class Tensors(unittest.TestCase):
    def test_every_element_type_is_little_endian(self):
        cases = [
            ("f16", [1.0, -2.5], "003c00c1", [1.0, -2.5]),
            ("bf16", [1.0, -2.5], "803f20c0", [1.0, -2.5]),
            ("f32", [1, -2.5], "0000803f000020c0", [1.0, -2.5]),
            ("f64", [1], "000000000000f03f", [1.0]),
            ("u8", [1, 255], "01ff", [1, 255]),
            ("i32", [-2], "feffffff", [-2]),
            ("i64", [1 << 40], "0000000000010000", [1 << 40]),
        ]
        for dtype, data, content, back in cases:
            with self.subTest(dtype):
                tensor = Tensor(data, dtype=dtype)
                self.assertEqual((tensor.dtype, tensor.shape), (dtype, (len(data),)))
                self.assertEqual((tensor.tobytes().hex(), tensor.tolist()), (content, back))
                self.assertEqual(Tensor(bytes.fromhex(content), dtype=dtype).tolist(), back)
                self.assertEqual(len(tensor.toarray()), len(data))

    def test_bf16_is_rounded_to_the_nearest(self):
        def rounded(bits):
            (number,) = struct.unpack("<f", struct.pack("<I", bits))
            return Tensor(number, dtype="bf16").tobytes()[::-1].hex()

        self.assertEqual([rounded(0x3F80_7FFF), rounded(0x3F80_8001)], ["3f80", "3f81"])
        self.assertEqual([rounded(0x3F80_8000), rounded(0x3F81_8000)], ["3f80", "3f82"])  # ties to even
        self.assertEqual([rounded(0x7F80_0000), rounded(0xFF7F_FFFF)], ["7f80", "ff80"])
        self.assertTrue(math.isnan(Tensor(math.nan, dtype="bf16").item()))

    def test_shapes(self):
        self.assertEqual(Tensor([[1, 2, 3], [4, 5, 6]]).shape, (2, 3))
        self.assertEqual(Tensor([[[1], [2]]]).tolist(), [[[1.0], [2.0]]])
        self.assertEqual(Tensor([1, 2, 3, 4], [2, 2]).tolist(), [[1.0, 2.0], [3.0, 4.0]])
        self.assertEqual((Tensor(3).shape, Tensor(3).tolist(), Tensor(3).item()), ((), 3.0, 3.0))
        self.assertEqual((Tensor([], [2, 0]).tolist(), Tensor([], [0, 5]).tolist()), ([[], []], []))
        self.assertEqual(Tensor([[], []]).shape, (2, 0))

    def test_what_does_not_fit_is_invalid(self):
        cases = [
            lambda: Tensor([1, 2, 3], [2]),
            lambda: Tensor([1], [-1, -1]),
            lambda: Tensor([1], "1"),
            lambda: Tensor([1], [1.0]),
            lambda: Tensor([1], 1),
            lambda: Tensor([[1], [2, 3]]),
            lambda: Tensor([[1], 2]),
            lambda: Tensor(["1"]),
            lambda: Tensor([None]),
            lambda: Tensor(None),
            lambda: Tensor({"a": 1}),
            lambda: Tensor("text"),
            lambda: Tensor([1], dtype="f8"),
            lambda: Tensor([256], dtype="u8"),
            lambda: Tensor([-1], dtype="u8"),
            lambda: Tensor([1 << 31], dtype="i32"),
            lambda: Tensor([1.5], dtype="i64"),
            lambda: Tensor([1e6], dtype="f16"),
            lambda: Tensor(b"12345", dtype="f32"),
            lambda: Tensor(array("H", [1])),
            lambda: Tensor([1, 2]).item(),
        ]
        for number, case in enumerate(cases):
            with self.subTest(number):
                self.assertEqual(code(case), "invalid_tensor")

    def test_buffers_keep_their_type_unless_another_is_asked_for(self):
        self.assertEqual(Tensor(array("d", [1.5])).dtype, "f64")
        self.assertEqual(Tensor(array("d", [1.5]), dtype="f32").tobytes(), struct.pack("<f", 1.5))
        self.assertEqual(Tensor(array("q", [-1])).tolist(), [-1])
        view = memoryview(array("i", range(6))).cast("B").cast("i", (2, 3))
        self.assertEqual((Tensor(view).dtype, Tensor(view).tolist()), ("i32", [[0, 1, 2], [3, 4, 5]]))
        self.assertEqual(Tensor(memoryview(b"\x01\x02")[::-1]).tolist(), [2, 1])
        self.assertEqual((Tensor(b"\x01\x02").dtype, Tensor(b"\x01\x02").tolist()), ("u8", [1, 2]))
        self.assertEqual(code(lambda: Tensor(Tensor([1.5]), dtype="i32")), "invalid_tensor")
        self.assertEqual(Tensor(Tensor([[1.5]]), dtype="f64").shape, (1, 1))

    @unittest.skipIf(sys.version_info < (3, 12), "buffers in Python are of 3.12")
    def test_a_tensor_is_a_buffer(self):
        view = memoryview(Tensor([[1, 2], [3, 4]]))
        self.assertEqual((view.shape, view.tolist()), ((2, 2), [[1.0, 2.0], [3.0, 4.0]]))

    @unittest.skipIf(numpy is None, "numpy is not there")
    def test_numpy(self):
        given = numpy.arange(6, dtype="f4").reshape(2, 3)
        for array_ in (given, given.T, given[:, ::2], given.astype("f8"), given.astype("f2"), given.astype("u1")):
            tensor = Tensor(array_)
            self.assertEqual((tensor.shape, tensor.tolist()), (array_.shape, array_.tolist()))
            self.assertTrue((tensor.numpy() == array_).all())
        self.assertEqual(Tensor(given.astype("i8")).dtype, "i64")
        self.assertEqual(Tensor(numpy.array([True, False])).tolist(), [1, 0])
        self.assertEqual(Tensor([1], numpy.array([1])).shape, (1,))
        self.assertEqual(numpy.asarray(Tensor([1.5], dtype="bf16")).tolist(), [1.5])
        self.assertEqual(code(lambda: Tensor(given.astype(">f4"))), "invalid_tensor")

    def test_helpers(self):
        self.assertEqual(argmax(Tensor([1, 3, 3])), 1)
        self.assertEqual(topk([0.1, 0.7, 0.2], 2), [(1, 0.7), (2, 0.2)])
        self.assertEqual(topk([1.0], 5), [(0, 1.0)])
        probabilities = softmax([1000.0, 1000.0, -1000.0])
        self.assertEqual(probabilities, [0.5, 0.5, 0.0])
        self.assertEqual(softmax([]), [])


def double(inputs):
    if list(inputs) != ["x"]:
        raise Error(400, "wrong", f"takes x, given {list(inputs)}")
    return {"y": [2 * x for x in inputs["x"].tolist()]}


class Models(unittest.TestCase):
    def setUp(self):
        self.reads = reads = []

        class Counted(Host):
            def tensor(self, shape, dtype, data):
                made = super().tensor(shape, dtype, data)
                read = made.data
                made.data = lambda: [reads.append(shape), read()][1]
                return made

        self.host = Counted(models={"double": double, "same": lambda inputs: inputs})

    def test_outputs_by_name_and_order(self):
        outputs = self.host.run(lambda: Model("double").run({"x": [1, 2.5]}))
        self.assertEqual((list(outputs), len(outputs), "y" in outputs), (["y"], 1, True))
        self.assertEqual((outputs["y"].tolist(), outputs.first.tolist()), ([2.0, 5.0], [2.0, 5.0]))
        self.assertIsNone(outputs.get("z"))
        with self.assertRaises(Error) as raised:
            outputs["z"]
        self.assertEqual(str(raised.exception), "500 no_such_output: model `double` gave no output `z`, only `y`")

    def test_an_output_goes_on_without_being_read(self):
        def chain():
            once = Model("same").run({"x": Tensor([1, 2])}).first
            return once, Model("same").run({"x": once}).first

        once, twice = self.host.run(chain)
        self.assertEqual(self.reads, [])
        with self.assertRaises(ValueError):
            once.tobytes()
        self.assertEqual(twice.tolist(), [1.0, 2.0])
        self.assertEqual((twice.tolist(), len(self.reads)), ([1.0, 2.0], 1))

    def test_a_tensor_that_was_made_or_read_can_be_given_again(self):
        def again():
            given = Tensor([1, 2])
            first = Model("double").run({"x": given}).first
            first.tobytes()
            return [Model("double").run({"x": tensor}).first.tolist() for tensor in (given, first, first)]

        self.assertEqual(self.host.run(again), [[2.0, 4.0], [4.0, 8.0], [4.0, 8.0]])

    def test_errors_follow_the_table(self):
        self.assertEqual(self.host.run(lambda: code(lambda: Model("nowhere").run({}))), "model_unavailable")
        with self.assertRaises(Error) as raised:
            self.host.run(lambda: Model("double").run({"y": [1]}))
        self.assertEqual(str(raised.exception), "400 invalid_tensor: model `double`: takes x, given ['y']")
        self.assertEqual(code(lambda: Model("double").run({"x": [1]})), "model_unavailable")

    def test_a_model_of_a_module_is_opened_on_the_host_of_each_call(self):
        model = Model("double")
        self.assertEqual(self.host.run(lambda: model.run({"x": [1]}).first.item()), 2.0)
        other = Host(models={"double": lambda inputs: {"y": [0]}})
        self.assertEqual(other.run(lambda: model.run({"x": [1]}).first.item()), 0.0)
        self.assertEqual(Host().run(lambda: code(model.open)), "model_unavailable")


if __name__ == "__main__":
    unittest.main()
