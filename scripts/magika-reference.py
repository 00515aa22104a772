#!/usr/bin/env python3
"""Asks the Python package `magika` about the samples of `examples/file-type`; writes `expected.json` there.

The package is the reference that the example is held to. It goes, pinned, into a virtual environment under
`target/`, which the script makes on first use (that needs the package index).

    python3 scripts/magika-reference.py

For each sample: what the package answers, and under `model` what the model itself chose and a hash of the
numbers that it was fed (FNV-1a, 64 bits, over them as little-endian 16-bit numbers), or null where it was not
asked.
"""

import io
import json
import os
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "file-type"
VENV = ROOT / "target" / "venv-magika"
VERSION = "1.0.3"


def main() -> None:
    try:
        import magika
    except ImportError:
        magika = None
    if magika is None or magika.__version__ != VERSION:
        return rerun_in_venv()

    reference = magika.Magika()
    expected = {
        path.name: answer(reference, path.read_bytes()) for path in sorted((EXAMPLE / "samples").iterdir())
    }
    text = json.dumps(expected, indent=2, ensure_ascii=False) + "\n"
    (EXAMPLE / "expected.json").write_text(text, encoding="utf-8")
    print(f"{len(expected)} samples: {', '.join(sorted({entry['label'] for entry in expected.values()}))}")


def rerun_in_venv() -> None:
    """Runs this script again in an environment that has the package; never more than once."""
    python = VENV / ("Scripts" if os.name == "nt" else "bin") / "python"
    if pathlib.Path(sys.executable) == python:
        sys.exit(f"{VENV} has no magika {VERSION}: remove it and try again")
    if not python.exists():
        venv.create(VENV, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", f"magika=={VERSION}"], check=True)
    sys.exit(subprocess.run([str(python), __file__], check=False).returncode)


def answer(reference, content: bytes) -> dict:
    """The package's answer, as the function gives it, and what the model had to do with it."""
    result = reference.identify_bytes(content)
    output = result.output
    return {
        "label": str(output.label),
        "mime_type": output.mime_type,
        "group": output.group,
        "description": output.description,
        "is_text": output.is_text,
        "score": result.score,
        "model": model(reference, content, result),
    }


def model(reference, content: bytes, result) -> "dict | None":
    from magika.types import Seekable

    _, features = reference._get_result_or_features_from_seekable(Seekable(io.BytesIO(content)))
    if features is None:
        return None
    return {"label": str(result.dl.label), "tokens_fnv1a": fnv1a([*features.beg, *features.end])}


def fnv1a(tokens: list) -> str:
    state = 0xCBF29CE484222325
    for token in tokens:
        for byte in token.to_bytes(2, "little"):
            state = (state ^ byte) * 0x100000001B3 % 2**64
    return f"{state:016x}"


if __name__ == "__main__":
    main()
