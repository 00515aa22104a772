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
const MAX_SECONDS: usize = 600;

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
    let speech = speech.iter().map(|Speech { start, end }| Times { start_s: seconds(*start), end_s: seconds(*end) });
    Response::json(&Answer { duration_s: seconds(total), speech: speech.collect(), probabilities })
}

fn seconds(samples: usize) -> f64 {
    samples as f64 / f64::from(RATE)
}
