//! A WAV file that streams by, as samples: bytes go in however they are cut, mono samples from -1 to 1 come
//! out. Memory stays constant.

use weir_sdk::Error;

/// The samples per second that the model wants.
pub const RATE: u32 = 16_000;

/// The part of a `fmt ` chunk that says anything here: up to the first bytes of the extensible form's GUID.
const FORMAT_BYTES: u64 = 26;

const PCM: u16 = 1;
const FLOAT: u16 = 3;
const EXTENSIBLE: u16 = 0xfffe;

/// What of the file comes next.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// `RIFF`, a length, `WAVE`.
    Head,
    /// A chunk's name and length.
    Chunk,
    /// The `fmt ` chunk, of this length.
    Format(u32),
    /// As many bytes of no interest.
    Skip(u64),
    /// The samples: as many bytes at most.
    Samples(u64),
    /// What follows the samples.
    End,
}

/// How a sample is written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Encoding {
    Int16,
    Float32,
}

#[derive(Debug, Clone, Copy)]
struct Format {
    encoding: Encoding,
    stereo: bool,
}

pub struct Reader {
    next: Next,
    /// The bytes that are there of what comes next and is not whole yet.
    partial: Vec<u8>,
    format: Option<Format>,
}

impl Reader {
    pub fn new() -> Self {
        Self { next: Next::Head, partial: vec![], format: None }
    }

    /// Takes the file's next bytes, and adds the samples that are whole with them, two channels as their mean.
    ///
    /// Errors: 415 `not_wav`, or `unsupported_wav` for another encoding, rate, or number of channels; 400
    /// `invalid_wav`.
    pub fn push(&mut self, mut bytes: &[u8], samples: &mut Vec<f32>) -> Result<(), Error> {
        while !bytes.is_empty() {
            match self.next {
                Next::Head => {
                    let Some(head) = self.whole(12, &mut bytes) else { break };
                    if !(head.starts_with(b"RIFF") && head.ends_with(b"WAVE")) {
                        return Err(Error::new(415, "not_wav", "the body is not a WAV file (RIFF, WAVE)"));
                    }
                    self.next = Next::Chunk;
                }
                Next::Chunk => {
                    let Some(head) = self.whole(8, &mut bytes) else { break };
                    let length = u32_at(&head, 4);
                    self.next = match head.get(..4) {
                        Some(b"fmt ") => Next::Format(length),
                        Some(b"data") => Next::Samples(u64::from(length)),
                        _ => Next::Skip(padded(length)),
                    };
                }
                Next::Format(length) => {
                    let read = padded(length).min(FORMAT_BYTES);
                    let Some(format) = self.whole(read as usize, &mut bytes) else { break };
                    self.format = Some(Format::read(&format)?);
                    self.next = Next::Skip(padded(length) - read);
                }
                Next::Skip(left) => {
                    let now = left.min(bytes.len() as u64);
                    bytes = bytes.get(now as usize..).unwrap_or_default();
                    self.next = if now == left { Next::Chunk } else { Next::Skip(left - now) };
                }
                Next::Samples(left) => {
                    let Some(format) = self.format else {
                        return Err(invalid("its samples come before what they are (`data` before `fmt `)"));
                    };
                    let now = left.min(bytes.len() as u64);
                    let (data, rest) = bytes.split_at(now as usize);
                    self.push_samples(format, data, samples)?;
                    bytes = rest;
                    self.next = if now == left { Next::End } else { Next::Samples(left - now) };
                }
                Next::End => break,
            }
        }
        Ok(())
    }

    /// 400 `invalid_wav` if the file ended before its samples began. Where they end early, those that came are
    /// all there are: who streams does not know the length, and writes the largest.
    pub fn finish(&self) -> Result<(), Error> {
        match self.next {
            Next::Samples(_) | Next::End if self.format.is_some() => Ok(()),
            _ => Err(invalid("it ends before its samples begin")),
        }
    }

    /// The next `count` bytes, once they are there; else `bytes` has been used up.
    fn whole(&mut self, count: usize, bytes: &mut &[u8]) -> Option<Vec<u8>> {
        let missing = count.saturating_sub(self.partial.len());
        let (now, rest) = bytes.split_at(missing.min(bytes.len()));
        self.partial.extend_from_slice(now);
        *bytes = rest;
        (self.partial.len() >= count).then(|| std::mem::take(&mut self.partial))
    }

    fn push_samples(&mut self, format: Format, mut data: &[u8], samples: &mut Vec<f32>) -> Result<(), Error> {
        let size = format.frame_bytes();
        if !self.partial.is_empty() {
            let Some(frame) = self.whole(size, &mut data) else { return Ok(()) };
            samples.push(format.sample(&frame)?);
        }
        let frames = data.chunks_exact(size);
        self.partial.extend_from_slice(frames.remainder());
        for frame in frames {
            samples.push(format.sample(frame)?);
        }
        Ok(())
    }
}

impl Format {
    /// From a `fmt ` chunk: the encoding (or, at byte 24, that of the extensible form), channels, rate, and at
    /// byte 14 the bits of a sample.
    fn read(chunk: &[u8]) -> Result<Self, Error> {
        if chunk.len() < 16 {
            return Err(invalid("its `fmt ` chunk is too short"));
        }
        let (channels, rate, bits) = (u16_at(chunk, 2), u32_at(chunk, 4), u16_at(chunk, 14));
        let tag = match u16_at(chunk, 0) {
            EXTENSIBLE => u16_at(chunk, 24),
            tag => tag,
        };
        let encoding = match (tag, bits) {
            (PCM, 16) => Encoding::Int16,
            (FLOAT, 32) => Encoding::Float32,
            _ => {
                return Err(unsupported(format!(
                    "samples of {bits} bits in encoding {tag}; send 16-bit PCM or 32-bit floating point"
                )));
            }
        };
        if rate != RATE {
            return Err(unsupported(format!("{rate} samples a second; resample it to {RATE}")));
        }
        let stereo = match channels {
            1 => false,
            2 => true,
            _ => return Err(unsupported(format!("{channels} channels; send one or two"))),
        };
        Ok(Self { encoding, stereo })
    }

    fn frame_bytes(self) -> usize {
        self.encoding.bytes() * if self.stereo { 2 } else { 1 }
    }

    /// The sample of a frame that is whole.
    fn sample(self, frame: &[u8]) -> Result<f32, Error> {
        let first = self.encoding.sample(frame);
        let sample = if self.stereo {
            let second = self.encoding.sample(frame.get(self.encoding.bytes()..).unwrap_or_default());
            (first + second) / 2.0
        } else {
            first
        };
        if sample.is_finite() { Ok(sample) } else { Err(invalid("it has a sample that is not a number")) }
    }
}

impl Encoding {
    fn bytes(self) -> usize {
        match self {
            Self::Int16 => 2,
            Self::Float32 => 4,
        }
    }

    fn sample(self, bytes: &[u8]) -> f32 {
        match self {
            Self::Int16 => f32::from(u16_at(bytes, 0).cast_signed()) / 32768.0,
            Self::Float32 => f32::from_bits(u32_at(bytes, 0)),
        }
    }
}

/// Chunks begin at even positions.
fn padded(length: u32) -> u64 {
    u64::from(length).next_multiple_of(2)
}

/// The little-endian number at `position`, or 0 where there are no such bytes.
fn u16_at(bytes: &[u8], position: usize) -> u16 {
    bytes.get(position..).and_then(<[u8]>::first_chunk).copied().map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], position: usize) -> u32 {
    bytes.get(position..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_le_bytes)
}

fn invalid(why: &str) -> Error {
    Error::new(400, "invalid_wav", format!("the WAV file cannot be read: {why}"))
}

fn unsupported(what: String) -> Error {
    Error::new(415, "unsupported_wav", format!("the WAV file has {what}"))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The samples of a file that comes in pieces of `piece` bytes.
    pub fn read(bytes: &[u8], piece: usize) -> Result<Vec<f32>, Error> {
        let (mut reader, mut samples) = (Reader::new(), vec![]);
        for bytes in bytes.chunks(piece) {
            reader.push(bytes, &mut samples)?;
        }
        reader.finish()?;
        Ok(samples)
    }

    fn chunk(name: &str, data: &[u8]) -> Vec<u8> {
        let mut chunk = name.as_bytes().to_vec();
        chunk.extend((data.len() as u32).to_le_bytes());
        chunk.extend(data);
        chunk.resize(chunk.len().next_multiple_of(2), 0);
        chunk
    }

    fn format(tag: u16, channels: u16, rate: u32, bits: u16) -> Vec<u8> {
        let frame = channels * bits / 8;
        let mut format = vec![];
        format.extend([tag, channels].map(u16::to_le_bytes).concat());
        format.extend([rate, rate * u32::from(frame)].map(u32::to_le_bytes).concat());
        format.extend([frame, bits].map(u16::to_le_bytes).concat());
        chunk("fmt ", &format)
    }

    fn file(chunks: &[Vec<u8>]) -> Vec<u8> {
        [b"RIFF\0\0\0\0WAVE", &*chunks.concat()].concat()
    }

    fn refusal(bytes: &[u8]) -> (u16, String) {
        let error = read(bytes, 5).unwrap_err();
        (error.status(), error.code().to_owned())
    }

    #[test]
    fn samples_do_not_depend_on_how_the_bytes_are_cut() {
        let halves = [0.5f32, -0.25, 0.0, 1.0].map(f32::to_le_bytes).concat();
        let bytes = file(&[
            chunk("LIST", b"odd"),
            format(FLOAT, 2, RATE, 32),
            chunk("data", &halves),
            chunk("data", &halves),
        ]);
        for piece in 1..=bytes.len() {
            assert_eq!(read(&bytes, piece).unwrap(), [0.125, 0.5]);
        }
        let bytes = file(&[format(PCM, 1, RATE, 16), chunk("data", &[0, 0x80, 0, 0x40, 0xff])]);
        for piece in 1..=bytes.len() {
            assert_eq!(read(&bytes, piece).unwrap(), [-1.0, 0.5]);
        }
    }

    #[test]
    fn a_stream_that_does_not_know_its_length_is_read_to_its_end() {
        for length in [u32::MAX, 1000] {
            let mut bytes = file(&[format(PCM, 1, RATE, 16)]);
            bytes.extend(b"data");
            bytes.extend(length.to_le_bytes());
            bytes.extend([0, 0x40].repeat(3));
            assert_eq!(read(&bytes, 7).unwrap(), [0.5; 3]);
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_the_reason() {
        let refused = |status, code: &str| (status, code.to_owned());
        let data = chunk("data", &[0; 8]);
        assert_eq!(refusal(b"OggS and more of it"), refused(415, "not_wav"));
        assert_eq!(refusal(b""), refused(400, "invalid_wav"));
        assert_eq!(refusal(b"RIFF"), refused(400, "invalid_wav"));
        assert_eq!(refusal(&file(std::slice::from_ref(&data))), refused(400, "invalid_wav"));
        assert_eq!(refusal(&file(&[format(PCM, 1, RATE, 16)])), refused(400, "invalid_wav"));
        assert_eq!(
            refusal(&file(&[chunk("fmt ", &[1, 0, 1, 0]), data.clone()])),
            refused(400, "invalid_wav")
        );
        let nan = chunk("data", &f32::NAN.to_le_bytes());
        assert_eq!(refusal(&file(&[format(FLOAT, 1, RATE, 32), nan])), refused(400, "invalid_wav"));
        for format in [
            format(PCM, 1, 44_100, 16),
            format(PCM, 1, RATE, 8),
            format(FLOAT, 1, RATE, 64),
            format(PCM, 3, RATE, 16),
            format(PCM, 0, RATE, 16),
            format(6, 1, RATE, 16),
        ] {
            assert_eq!(refusal(&file(&[format, data.clone()])), refused(415, "unsupported_wav"));
        }
    }
}
