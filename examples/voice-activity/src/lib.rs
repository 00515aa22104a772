//! Tells when somebody speaks in a recording, with the Silero VAD model: send a WAV file with POST (16 kHz, one
//! or two channels, 16-bit PCM or 32-bit floating point), and read where speech begins and ends, in seconds;
//! with `?probabilities=1` also how likely each 32 ms are speech.
//!
//! The body streams through in windows of 32 ms, so memory stays constant but for the answer. The model's state
//! goes from one window to the next on the host, without coming here. What is speech follows the Python package
//! `silero-vad` 6.2.3 with its defaults; `samples/` and `expected.json` hold this function to that package.
//!
//! | file | what |
//! | --- | --- |
//! | `wav.rs` | samples out of a WAV file that streams by |
//! | `windows.rs` | the samples as the model is fed them |
//! | `detector.rs` | the model, asked window by window |
//! | `speech.rs` | from its probabilities to the times of speech |

mod detector;
mod speech;
mod wav;
mod windows;

use serde::Serialize;
use weir_sdk::{Error, Request, Response, function};

use crate::detector::Detector;
use crate::speech::Speech;
use crate::wav::{RATE, Reader};

/// The longest recording, in seconds: a call has an end.
const MAX_SECONDS: usize = 300;

#[derive(Serialize)]
struct Answer {
    duration_s: f64,
    speech: Vec<Times>,
    /// How likely each window is speech, 0 to 1; only where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    probabilities: Option<Vec<f32>>,
}

#[derive(Serialize)]
struct Times {
    start_s: f64,
    end_s: f64,
}

#[function]
fn handle(request: Request) -> Result<Response, Error> {
    request.require_method("POST")?;
    let with_probabilities = match request.query("probabilities") {
        None | Some("0") => false,
        Some("1") => true,
        Some(other) => {
            let detail = format!("`probabilities` is 0 or 1, not `{other}`");
            return Err(Error::new(400, "invalid_query", detail));
        }
    };
    let mut reader = Reader::new();
    let mut detector = Detector::open(with_probabilities)?;
    let (mut samples, mut total) = (vec![], 0);
    for chunk in request.into_chunks()? {
        reader.push(&chunk?, &mut samples)?;
        total += samples.len();
        if total > MAX_SECONDS * RATE as usize {
            let detail = format!("the recording is longer than {MAX_SECONDS} seconds: send it in parts");
            return Err(Error::new(413, "audio_too_long", detail));
        }
        detector.push(&samples)?;
        samples.clear();
    }
    reader.finish()?;
    let (speech, probabilities) = detector.finish(total)?;
    let speech =
        speech.iter().map(|Speech { start, end }| Times { start_s: seconds(*start), end_s: seconds(*end) });
    Response::json(&Answer { duration_s: seconds(total), speech: speech.collect(), probabilities })
}

fn seconds(samples: usize) -> f64 {
    samples as f64 / f64::from(RATE)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use serde::Deserialize;
    use weir_sdk::serde_json;

    use super::*;
    use crate::speech::Segmenter;
    use crate::windows::Windows;

    /// An entry of `expected.json`, which `scripts/silero-reference.py` writes.
    #[derive(Deserialize)]
    struct Expected {
        samples: usize,
        samples_fnv1a: String,
        speech: Vec<Speech>,
        probabilities: Vec<f32>,
    }

    /// FNV-1a, 64 bits, over the samples' bytes.
    fn fnv1a(samples: &[f32]) -> String {
        let bytes = samples.iter().flat_map(|sample| sample.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }

    #[test]
    fn every_sample_is_read_and_judged_as_the_reference_does() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let expected = std::fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: BTreeMap<String, Expected> = serde_json::from_str(&expected).unwrap();
        assert_eq!(expected.len(), std::fs::read_dir(folder.join("samples")).unwrap().count());
        for (name, expected) in expected {
            let bytes = std::fs::read(folder.join("samples").join(&name)).unwrap();
            let samples = wav::tests::read(&bytes, 64 * 1024).unwrap();
            assert_eq!(samples.len(), expected.samples, "{name}");
            assert_eq!(fnv1a(&samples), expected.samples_fnv1a, "{name}");

            let (mut windows, mut count) = (Windows::new(), 0);
            let each = |_: &[f32]| {
                count += 1;
                Ok::<(), ()>(())
            };
            windows.push(&samples, each).unwrap();
            count += usize::from(windows.finish().is_some());
            assert_eq!(count, expected.probabilities.len(), "{name}");

            let mut segmenter = Segmenter::default();
            expected.probabilities.iter().for_each(|probability| segmenter.push(*probability));
            assert_eq!(segmenter.finish(samples.len()), expected.speech, "{name}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_request_is_said_before_the_model_is_asked() {
        let refusal = |method, path| {
            let error = handle(Request::new(method, path, "")).unwrap_err();
            (error.status(), error.code().to_owned())
        };
        assert_eq!(refusal("GET", "/"), (405, "method_not_allowed".to_owned()));
        assert_eq!(refusal("POST", "/?probabilities=yes"), (400, "invalid_query".to_owned()));
    }
}
