#!/usr/bin/env python3
"""Makes the samples that nobody can write by hand: binary formats, and texts longer than a block of 4096
bytes.

The same bytes on every run and machine (but for the library version that SQLite puts into its header),
standard library only. The samples are committed; run this to add one, then `scripts/magika-reference.py`.
"""

import base64
import gzip
import io
import pathlib
import sqlite3
import struct
import tarfile
import tempfile
import wave
import zipfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
BLOCK = 4096


def noise(count: int) -> bytes:
    """Bytes without a pattern: a linear congruential generator's high bits."""
    state, out = 1, bytearray()
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(state >> 56)
    return bytes(out)


def png() -> bytes:
    """16 by 16 pixels, RGB."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(v for x in range(16) for v in (x * 16, y * 16, 128)) for y in range(16))
    header = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    chunks = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def gif() -> bytes:
    """8 by 8 pixels, uncompressed in the way GIF allows: a clear code before the code width would grow."""
    palette = bytes(v for i in range(4) for v in (i * 80, 255 - i * 80, 40))
    codes = []
    for i in range(64):
        if i % 2 == 0:
            codes.append(4)
        codes.append(i % 4)
    codes.append(5)
    bits = sum(code << (3 * i) for i, code in enumerate(codes))
    data = bits.to_bytes((3 * len(codes) + 7) // 8, "little")
    head = b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0x91, 0, 0) + palette
    image = b"\x2c" + struct.pack("<HHHHB", 0, 0, 8, 8, 0) + b"\x02" + bytes([len(data)]) + data + b"\0"
    return head + image + b"\x3b"


def jpeg() -> bytes:
    """8 by 8 grey pixels, baseline, with the shortest tables that the format allows."""

    def segment(marker: int, data: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data

    jfif = segment(0xE0, b"JFIF\0" + struct.pack(">HBHHBB", 0x0101, 1, 72, 72, 0, 0))
    quantization = segment(0xDB, b"\0" + bytes(min(16 + 2 * i, 255) for i in range(64)))
    frame = segment(0xC0, struct.pack(">BHHBBBB", 8, 8, 8, 1, 1, 0x11, 0))
    one_code = bytes([1] + [0] * 15 + [0])
    huffman = segment(0xC4, b"\x00" + one_code) + segment(0xC4, b"\x10" + one_code)
    scan = segment(0xDA, bytes([1, 1, 0, 0, 63, 0]))
    return b"\xff\xd8" + jfif + quantization + frame + huffman + scan + b"\x3f" + b"\xff\xd9"


def bmp() -> bytes:
    """8 by 8 pixels, 24 bits each."""
    pixels = bytes(v for y in range(8) for x in range(8) for v in (x * 32, y * 32, 90))
    header = struct.pack("<IiiHHIIiiII", 40, 8, 8, 1, 24, 0, len(pixels), 2835, 2835, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(pixels), 0, 0, 54) + header + pixels


def zip_archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in [("notes/one.txt", "first note\n" * 20), ("notes/two.txt", "second note\n" * 30)]:
            archive.writestr(zipfile.ZipInfo(name, (2026, 5, 1, 6, 0, 0)), text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in [("notes/one.txt", b"first note\n" * 20), ("notes/two.txt", b"second note\n" * 30)]:
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(data), 1777615200, 0o644
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()[: 6 * 512]


def pdf() -> bytes:
    """One page that says hello."""
    content = b"BT /F1 24 Tf 72 720 Td (Hello from the weir) Tj ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, offsets = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"), []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(out)


def wav() -> bytes:
    """A quarter of a second of a saw tooth, 8 kHz, 8 bits."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(8000)
        file.writeframes(bytes(i * 7 % 256 for i in range(2000)))
    return buffer.getvalue()


def elf() -> bytes:
    """An x86-64 Linux program that exits with 0."""
    code = bytes.fromhex("31ff b83c000000 0f05")
    base, offset = 0x400000, 64 + 56
    ident = b"\x7fELF" + bytes([2, 1, 1, 0]) + bytes(8)
    header = struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, base + offset, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    size = offset + len(code)
    return ident + header + struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000) + code


def wasm() -> bytes:
    """A module that exports `add`."""
    types, functions = "01 07 01 60 02 7f 7f 01 7f", "03 02 01 00"
    exports, code = "07 07 01 03 616464 00 00", "0a 09 01 07 00 2000 2001 6a 0b"
    return b"\0asm\1\0\0\0" + bytes.fromhex(types + functions + exports + code)


def sqlite() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "gauges.db"
        database = sqlite3.connect(path)
        database.execute("PRAGMA page_size = 512")
        database.execute("CREATE TABLE readings (station TEXT, level_cm REAL)")
        rows = [("upper bridge", 142.0), ("old mill", 97.0)]
        database.executemany("INSERT INTO readings VALUES (?, ?)", rows)
        database.commit()
        database.close()
        return path.read_bytes()


def long_log() -> bytes:
    """Longer than a block, so that head and tail are different bytes; it begins and ends with blank lines."""
    lines = [
        f"2026-05-{1 + i // 24:02d}T{i % 24:02d}:00:00Z gauge[{100 + i % 3}]: "
        f"level={140 + i * 7 % 23} cm flow={18 + i % 5}.{i % 10}"
        for i in range(110)
    ]
    return ("\n\n  \n" + "\n".join(lines) + "\n\n \t\n").encode()


def long_python() -> bytes:
    """Two blocks of source, without a hint in the first line."""
    parts = [
        f"def step_{i}(state):\n"
        f'    """Open gate {i} if the level allows it."""\n'
        f"    if state.level > {100 + i}:\n"
        f"        state.gates[{i}] = True\n"
        f"    return state\n\n\n"
        for i in range(50)
    ]
    return "".join(parts).encode()


SAMPLES = {
    "png.png": png(),
    "jpeg.jpg": jpeg(),
    "gif.gif": gif(),
    "bmp.bmp": bmp(),
    "zip.zip": zip_archive(),
    "gzip.gz": gzip.compress(b"first note, second note\n" * 40, mtime=0),
    "tar.tar": tar(),
    "pdf.pdf": pdf(),
    "wav.wav": wav(),
    "elf.elf": elf(),
    "wasm.wasm": wasm(),
    "sqlite.db": sqlite(),
    "base64.txt": base64.encodebytes(noise(900)),
    "noise.bin": noise(2000),
    "noise-long.bin": noise(2 * BLOCK - 192),
    "long.log": long_log(),
    "long-python.py": long_python(),
    # Nothing but white space in the first block: the model is not asked, whatever follows.
    "late-start.py": b" " * BLOCK + b"\nimport sys\n\nprint(sys.argv)\n",
    # The first block ends within a character, and has too little else to ask the model.
    "cut-character.txt": b"\n" * (BLOCK - 1) + "éééé".encode(),
    # Seven bytes after the leading white space, and eight: the model is asked from eight on.
    "seven-bytes.txt": b"\x0b\x0c\r\n  weir {}",
    "eight-bytes.txt": b"\x0b\x0c\r\n  weir {};",
    # The white space before is no part of the head, but part of the tail; the white space after, the reverse.
    "padded-json.json": b'  \n\t {"level": [142, 97], "unit": "cm"}  \n\n\n',
}


def main() -> None:
    for name, content in SAMPLES.items():
        (HERE / "samples" / name).write_bytes(content)


if __name__ == "__main__":
    main()
