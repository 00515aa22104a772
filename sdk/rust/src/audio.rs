//! Sound as models want it (feature `audio`): WAV read as it comes in, as one channel at one rate.
//!
//! ```
//! use weir_sdk::audio::Sound;
//! use weir_sdk::{Error, Request};
//!
//! fn loudest(request: Request) -> Result<f32, Error> {
//!     let mut peak = 0f32;
//!     for sample in Sound::of_wav(request.into_chunks()?)?.at(16_000) {
//!         peak = peak.max(sample?.abs());
//!     }
//!     Ok(peak)
//! }
//! ```

use std::io::{self, Read};

use hound::{SampleFormat, WavIntoSamples, WavReader};

use crate::{Chunks, Error};

/// The samples of one channel, -1 to 1, as they come in. Channels are mixed to their mean.
pub struct Sound {
    rate: u32,
    samples: Box<dyn Iterator<Item = Result<f32, Error>>>,
}

impl Sound {
    /// Reads a WAV of whole numbers (8 to 32 bits) or of floats, of any rate and number of channels, and never holds more of it
    /// than a part. What is none: 400 `invalid_audio`, here if it is the head, among the samples otherwise.
    pub fn of_wav(parts: Chunks) -> Result<Self, Error> {
        let reader = WavReader::new(Reader { parts, part: Vec::new(), read: 0 }).map_err(error)?;
        let spec = reader.spec();
        if spec.sample_rate == 0 || spec.channels == 0 {
            return Err(Error::new(400, "invalid_audio", "the WAV has no channels, or no rate"));
        }
        let channels = usize::from(spec.channels);
        let scale = 2f32.powi(i32::from(spec.bits_per_sample) - 1);
        let samples: Box<dyn Iterator<Item = Result<f32, Error>>> = match spec.sample_format {
            SampleFormat::Float => mixed(reader.into_samples::<f32>(), channels, |sample| sample),
            SampleFormat::Int => {
                mixed(reader.into_samples::<i32>(), channels, move |sample| sample as f32 / scale)
            }
        };
        Ok(Self { rate: spec.sample_rate, samples })
    }

    /// Samples for each second.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// The same sound at another rate, by linear interpolation. Going down, what lies above half the new rate folds back: good
    /// enough for speech, not for music.
    pub fn at(self, rate: u32) -> Self {
        if rate == self.rate || rate == 0 {
            return self;
        }
        let step = f64::from(self.rate) / f64::from(rate);
        let mut samples = self.samples;
        let (mut before, mut after, mut position, mut ended) = (None, None, 0.0, false);
        let resampled = std::iter::from_fn(move || {
            // `before` and `after` are the samples on both sides of `position`, which is counted from `before`.
            if ended {
                return None;
            }
            if before.is_none() {
                before = samples.next();
                after = samples.next();
            }
            while position >= 1.0 {
                before = after.take();
                after = samples.next();
                position -= 1.0;
            }
            let sample = match (before.as_ref()?, &after) {
                (Ok(left), Some(Ok(right))) => Ok(left + (right - left) * position as f32),
                (Ok(last), None) => Ok(*last),
                (Err(error), _) | (_, Some(Err(error))) => {
                    ended = true;
                    Err(error.clone())
                }
            };
            position += step;
            Some(sample)
        });
        Self { rate, samples: Box::new(resampled) }
    }
}

impl Iterator for Sound {
    type Item = Result<f32, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.samples.next()
    }
}

impl std::fmt::Debug for Sound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sound").field("rate", &self.rate).finish_non_exhaustive()
    }
}

/// The mean of each frame's channels. A frame that is not whole at the end is dropped.
fn mixed<S: hound::Sample + 'static>(
    mut samples: WavIntoSamples<Reader, S>,
    channels: usize,
    scale: impl Fn(S) -> f32 + 'static,
) -> Box<dyn Iterator<Item = Result<f32, Error>>> {
    let mut ended = false;
    Box::new(std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let mut sum = 0.0;
        for _ in 0..channels {
            match samples.next()? {
                Ok(sample) => sum += scale(sample),
                Err(why) => {
                    ended = true;
                    return Some(Err(error(why)));
                }
            }
        }
        Some(Ok(sum / channels as f32))
    }))
}

/// A body as something to read from.
struct Reader {
    parts: Chunks,
    part: Vec<u8>,
    read: usize,
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.read >= self.part.len() {
            match self.parts.next() {
                Some(part) => self.part = part.map_err(|error| io::Error::other(Unread(error)))?,
                None => return Ok(0),
            }
            self.read = 0;
        }
        let count = self.part.get(self.read..).unwrap_or_default().read(into)?;
        self.read += count;
        Ok(count)
    }
}

/// A body that could not be read, on its way through the reader of WAV.
#[derive(Debug)]
struct Unread(Error);

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Unread {}

fn error(error: hound::Error) -> Error {
    if let hound::Error::IoError(error) = &error
        && let Some(Unread(error)) = error.get_ref().and_then(|inner| inner.downcast_ref())
    {
        return error.clone();
    }
    Error::new(400, "invalid_audio", format!("the body is no WAV that can be read: {error}"))
}

#[cfg(test)]
mod tests {
    use hound::{WavSpec, WavWriter};

    use super::*;
    use crate::Request;

    fn wav(rate: u32, channels: u16, samples: &[i16]) -> Vec<u8> {
        let mut bytes = io::Cursor::new(Vec::new());
        let spec =
            WavSpec { channels, sample_rate: rate, bits_per_sample: 16, sample_format: SampleFormat::Int };
        let mut writer = WavWriter::new(&mut bytes, spec).unwrap();
        samples.iter().for_each(|&sample| writer.write_sample(sample).unwrap());
        writer.finalize().unwrap();
        bytes.into_inner()
    }

    /// The bytes in parts of an odd size.
    fn sound(bytes: Vec<u8>) -> Result<Sound, Error> {
        let parts: Vec<_> = bytes.chunks(7).map(|part| Ok(part.to_vec())).collect();
        Sound::of_wav(Request::new("POST", "/", "").with_parts(parts.into_iter()).into_chunks()?)
    }

    fn samples(sound: Sound) -> Vec<f32> {
        sound.map(Result::unwrap).collect()
    }

    #[test]
    fn channels_are_mixed() {
        let sound = sound(wav(8000, 2, &[16384, 0, -32768, -32768])).unwrap();
        assert_eq!(sound.rate(), 8000);
        assert_eq!(samples(sound), [0.25, -1.0]);
    }

    #[test]
    fn another_rate_is_between_the_samples() {
        let given = wav(8000, 1, &[0, 16384, 0, -16384]);
        assert_eq!(
            samples(sound(given.clone()).unwrap().at(16000)),
            [0., 0.25, 0.5, 0.25, 0., -0.25, -0.5, -0.5]
        );
        assert_eq!(samples(sound(given.clone()).unwrap().at(4000)), [0., 0.]);
        assert_eq!(samples(sound(given).unwrap().at(8000)).len(), 4);
    }

    #[test]
    fn what_is_no_wav_and_what_is_cut_off_say_so() {
        assert_eq!(sound(b"RIFF....".to_vec()).unwrap_err().code(), "invalid_audio");
        let mut cut = wav(8000, 1, &[1; 100]);
        cut.truncate(60);
        for rate in [8000, 16000] {
            let results: Vec<_> = sound(cut.clone()).unwrap().at(rate).collect();
            assert!(results.len() > 5);
            assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
            assert_eq!(results.last().unwrap().as_ref().unwrap_err().code(), "invalid_audio");
        }
    }

    #[test]
    fn a_body_that_breaks_off_is_its_own_error() {
        let whole = wav(8000, 1, &[1; 100]);
        let broken = Error::new(413, "body_too_large", "too large");
        let parts = vec![Ok(whole[..100].to_vec()), Err(broken.clone())];
        let chunks = Request::new("POST", "/", "").with_parts(parts.into_iter()).into_chunks().unwrap();
        assert_eq!(Sound::of_wav(chunks).unwrap().last().unwrap().unwrap_err(), broken);
    }
}
