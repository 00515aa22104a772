#!/usr/bin/env python3
"""Makes the samples: a few seconds each of speech, and of what is none.

The voice is espeak-ng's, which must be installed; its versions sound a little different. All else is the same
on every run and machine. Standard library only. The samples are committed; run this to change them, then
`scripts/silero-reference.py`.
"""

import io
import math
import pathlib
import struct
import subprocess
import wave

HERE = pathlib.Path(__file__).resolve().parent
RATE = 16000
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE


def noise(seconds: float, level: float) -> list:
    """White noise: a linear congruential generator's high bits."""
    state, out = 1, []
    for _ in range(round(seconds * RATE)):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(level * ((state >> 40) / 2**23 - 1))
    return out


def silence(seconds: float) -> list:
    return [0.0] * round(seconds * RATE)


def tone(frequency: float, seconds: float, level: float) -> list:
    return [level * math.sin(2 * math.pi * frequency * i / RATE) for i in range(round(seconds * RATE))]


def music() -> list:
    """Plucked chords: four harmonics of each note, dying away."""
    out = []
    for root in (220.0, 174.6, 261.6, 196.0):
        for i in range(round(0.5 * RATE)):
            t = i / RATE
            notes = (root * ratio * harmonic for ratio in (1, 1.25, 1.5) for harmonic in (1, 2, 3, 4))
            level = 0.1 * math.exp(-4 * t)
            out.append(level * sum(math.sin(2 * math.pi * f * t) / (f / root) for f in notes))
    return out


def speech(text: str) -> list:
    command = ["espeak-ng", "-v", "en-us", "-s", "150", "--stdout", text]
    spoken = subprocess.run(command, check=True, capture_output=True).stdout
    with wave.open(io.BytesIO(spoken)) as file:
        rate, data = file.getframerate(), file.readframes(2**30)
    samples = [value / 32768 for (value,) in struct.iter_unpack("<h", data[: len(data) // 2 * 2])]
    return resampled(samples, rate)


def resampled(samples: list, rate: int) -> list:
    """At 16 kHz, by a windowed sinc that lets through what both rates have."""
    ratio, reach = rate / RATE, 24
    band = min(1.0, 1 / ratio)
    out = []
    for i in range(int(len(samples) / ratio)):
        centre, value = i * ratio, 0.0
        for j in range(max(0, math.ceil(centre - reach)), min(len(samples), int(centre + reach) + 1)):
            x = j - centre
            sinc = 1.0 if x == 0 else math.sin(math.pi * band * x) / (math.pi * band * x)
            value += samples[j] * band * sinc * (0.5 + 0.5 * math.cos(math.pi * x / reach))
        out.append(value)
    return out


def mixed(a: list, b: list) -> list:
    return [x + y for x, y in zip(a, b)]


def pcm(samples: list) -> bytes:
    return b"".join(struct.pack("<h", max(-32768, min(32767, round(x * 32767)))) for x in samples)


def chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def wav(data: bytes, channels=1, tag=PCM, before=b"", after=b"") -> bytes:
    """A WAV file with 16 bits a sample, or 32 where they are floating-point."""
    size = channels * (4 if tag == FLOAT else 2)
    format = struct.pack("<HHIIHH", tag, channels, RATE, RATE * size, size, 8 * size // channels)
    if tag == EXTENSIBLE:
        guid = struct.pack("<H", PCM) + bytes.fromhex("000000001000800000aa00389b71")
        format += struct.pack("<HHI", 22, 16, 3) + guid
    return riff(before + chunk(b"fmt ", format) + chunk(b"data", data) + after)


def riff(chunks: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def main() -> None:
    gates = speech("The gates are open.")
    river = speech("Mind the river, it is rising.")
    sentences = silence(0.5) + gates + silence(0.9) + river + silence(0.6)
    level = len(sentences) / RATE
    # The other channel hears it earlier, and hums.
    earlier = mixed(gates[400:] + silence(400 / RATE), tone(50, 3, 0.01))
    stereo = b"".join(pcm(pair) for pair in zip(gates, earlier))
    samples = {
        "speech.wav": wav(pcm(sentences)),
        "speech-in-noise.wav": wav(pcm(mixed(sentences, noise(level, 0.02)))),
        # Ends in the middle of a word, and of a window; before the samples is another chunk, of an odd size.
        "speech-cut.wav": wav(pcm(silence(0.3) + gates[:12345]), before=chunk(b"JUNK", b"odd")),
        "speech-float.wav": wav(struct.pack(f"<{len(gates)}f", *gates), tag=FLOAT),
        "speech-stereo.wav": wav(stereo, channels=2, tag=EXTENSIBLE, after=chunk(b"id3 ", b"abc")),
        # Speech, too short to count.
        "word.wav": wav(pcm(silence(0.2) + gates[2000:4400] + silence(0.4))),
        "silence.wav": wav(pcm(silence(1))),
        "noise.wav": wav(pcm(noise(1, 0.1))),
        "tone.wav": wav(pcm(tone(440, 1, 0.3))),
        "music.wav": wav(pcm(music())),
        "shorter-than-a-window.wav": wav(pcm(tone(200, 0.01, 0.5))),
        "empty.wav": wav(b""),
    }
    for name, content in samples.items():
        (HERE / "samples" / name).write_bytes(content)


if __name__ == "__main__":
    main()
