#!/usr/bin/env python3
"""Asks the Python package `silero-vad` about the samples of `examples/voice-activity`; writes `expected.json`
there.

The package is the reference that the example is held to: its network as it loads it (which is another file
than the example's), in onnxruntime, and its own `get_speech_timestamps_from_probs`. It wants PyTorch, which
is gigabytes and does nothing here; the file of that rule is loaded with a name in PyTorch's place, and the
windows are made here, in numpy. The samples are read by libsndfile.

    python3 scripts/silero-reference.py

For each sample: how many samples it has and a hash of them (FNV-1a, 64 bits, over the bytes of mono 32-bit
floats), how likely each window is speech, and speech in samples. The packages go, pinned, into a virtual
environment under `target/`, which the script makes on first use (that needs the package index).
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import types
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "voice-activity"
VENV = ROOT / "target" / "venv-silero"
PACKAGES = ["numpy==2.2.6", "onnxruntime==1.22.1", "packaging==25.0", "soundfile==0.13.1"]
REFERENCE = "silero-vad==6.2.3"
RATE, STEP, CONTEXT = 16000, 512, 64


def main() -> None:
    found = importlib.util.find_spec("silero_vad")
    try:
        import onnxruntime
        import soundfile
    except ImportError:
        found = None
    if found is None:
        return rerun_in_venv()

    package = pathlib.Path(found.origin).parent
    network = onnxruntime.InferenceSession(str(package / "data" / "silero_vad.onnx"))
    rule = rules(package / "utils_vad.py").get_speech_timestamps_from_probs
    expected = {}
    for path in sorted((EXAMPLE / "samples").iterdir()):
        channels, rate = soundfile.read(path, dtype="float32", always_2d=True)
        assert rate == RATE, path
        samples = channels.mean(axis=1)
        probabilities = list(ask(network, samples))
        expected[path.name] = {
            "samples": len(samples),
            "samples_fnv1a": fnv1a(samples.tobytes()),
            "speech": rule(probabilities, audio_length_samples=len(samples)),
            "probabilities": [round(probability, 6) for probability in probabilities],
        }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in expected.items())
    (EXAMPLE / "expected.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    for name, entry in expected.items():
        speech = [(part["start"], part["end"]) for part in entry["speech"]]
        print(f"{name}: {entry['samples'] / RATE:.2f} s, speech {speech}")


def rerun_in_venv() -> None:
    """Runs this script again in an environment that has the packages; never more than once."""
    python = VENV / ("Scripts" if os.name == "nt" else "bin") / "python"
    if pathlib.Path(sys.executable) == python:
        sys.exit(f"{VENV} has not {', '.join(PACKAGES)}: remove it and try again")
    if not python.exists():
        venv.create(VENV, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", REFERENCE], check=True)
    subprocess.run([*pip, *PACKAGES], check=True)
    sys.exit(subprocess.run([str(python), __file__], check=False).returncode)


def rules(path: pathlib.Path):
    """The package's `utils_vad.py` without PyTorch, of which loading it needs no more than these names."""
    torch = types.ModuleType("torch")
    torch.Tensor, torch.device, torch.no_grad = object, str, lambda: lambda function: function
    sys.modules["torch"] = torch
    specification = importlib.util.spec_from_file_location("utils_vad", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def ask(network, samples):
    """How likely each window is speech, as the package's `OnnxWrapper` asks."""
    import numpy

    state, context = numpy.zeros((2, 1, 128), numpy.float32), numpy.zeros(CONTEXT, numpy.float32)
    for start in range(0, len(samples), STEP):
        new = samples[start : start + STEP]
        window = numpy.concatenate([context, new, numpy.zeros(STEP - len(new), numpy.float32)])
        inputs = {"input": window[None], "state": state, "sr": numpy.array(RATE, numpy.int64)}
        output, state = network.run(None, inputs)
        context = window[-CONTEXT:]
        yield output.item()


def fnv1a(content: bytes) -> str:
    state = 0xCBF29CE484222325
    for byte in content:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return f"{state:016x}"


if __name__ == "__main__":
    main()
