#!/usr/bin/env python3
"""Embeds the sentences of `examples/embeddings` without the example; writes `expected.json` there.

What an all-MiniLM-L6-v2 embedding is, `sentence-transformers` says; it wants PyTorch, which is gigabytes. So
the reference is made of two parts that share nothing with the example: Hugging Face's `tokenizers` with the
model's own `tokenizer.json`, cut at 256 tokens as `sentence-transformers` cuts for this model, and the
network written out here over the weights, in numpy and 64-bit floating point.

    python3 scripts/minilm-reference.py        (after `make models`)

For each sentence: its text, the tokens' ids, and the embedding, rounded to 6 digits. The packages go, pinned,
into a virtual environment under `target/`, which the script makes on first use (that needs the package
index).
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "embeddings"
MODEL = ROOT / "models" / "minilm"
VENV = ROOT / "target" / "venv-minilm"
PACKAGES = ["numpy==2.2.6", "safetensors==0.8.0", "tokenizers==0.23.3"]
MAX_TOKENS, LAYERS, HEADS, EPSILON = 256, 6, 12, 1e-12


def main() -> None:
    try:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer
    except ImportError:
        return rerun_in_venv()

    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    weights = load_file(MODEL / "model.safetensors")
    weights = {name: value.astype("float64") for name, value in weights.items()}
    expected = []
    for text in json.loads((EXAMPLE / "samples" / "sentences.json").read_text(encoding="utf-8")):
        # `sentence-transformers` strips a text before it tokenises it.
        tokens = tokenizer.encode(text.strip()).ids
        embedding = [round(value, 6) for value in embed(weights, tokens).tolist()]
        expected.append({"text": text, "tokens": tokens, "embedding": embedding})
    lines = ",\n".join(json.dumps(entry) for entry in expected)
    (EXAMPLE / "expected.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(expected)} sentences, {max(len(entry['tokens']) for entry in expected)} tokens at most")


def rerun_in_venv() -> None:
    """Runs this script again in an environment that has the packages; never more than once."""
    python = VENV / ("Scripts" if os.name == "nt" else "bin") / "python"
    if pathlib.Path(sys.executable) == python:
        sys.exit(f"{VENV} has not {', '.join(PACKAGES)}: remove it and try again")
    if not python.exists():
        venv.create(VENV, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", *PACKAGES], check=True)
    sys.exit(subprocess.run([str(python), __file__], check=False).returncode)


def embed(weights: dict, tokens: list):
    """The embedding [384] of one sentence's tokens: no batch, so no padding and no mask."""
    import numpy

    def dense(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normalized(x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / numpy.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON)
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def gelu(x):
        return x * (1 + numpy.vectorize(math.erf)(x / math.sqrt(2))) / 2

    def softmax(x):
        x = numpy.exp(x - x.max(axis=-1, keepdims=True))
        return x / x.sum(axis=-1, keepdims=True)

    def attention(x, name):
        query, key, value = (
            numpy.stack(numpy.split(dense(x, f"{name}.self.{part}"), HEADS, axis=-1))
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
        return dense(numpy.concatenate(softmax(scores) @ value, axis=-1), f"{name}.output.dense")

    x = weights["embeddings.word_embeddings.weight"][tokens]
    x = x + weights["embeddings.position_embeddings.weight"][: len(tokens)]
    x = normalized(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for index in range(LAYERS):
        name = f"encoder.layer.{index}"
        x = normalized(x + attention(x, f"{name}.attention"), f"{name}.attention.output.LayerNorm")
        wide = gelu(dense(x, f"{name}.intermediate.dense"))
        x = normalized(x + dense(wide, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    mean = x.mean(axis=0)
    return mean / numpy.sqrt((mean * mean).sum())


if __name__ == "__main__":
    main()
