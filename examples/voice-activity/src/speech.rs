//! From the model's probabilities, one for each window, to the times at which somebody speaks: the rules of the
//! Python package's `get_speech_timestamps` with its defaults. All times are in samples.

use crate::windows::STEP;

/// A window at least as likely is speech.
const THRESHOLD: f64 = 0.5;

/// A window less likely is silence; those between are what went before.
const SILENCE_THRESHOLD: f64 = 0.35;

/// Speech that is not longer does not count: 250 ms.
const MIN_SPEECH: usize = 4000;

/// Silence that is shorter does not end speech: 100 ms.
const MIN_SILENCE: usize = 1600;

/// Added to speech on both sides: 30 ms.
const PAD: usize = 480;

// Pads never meet, so there is no rule for what they share.
const _: () = assert!(MIN_SILENCE >= 2 * PAD);

/// From the first sample to the one after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Speech {
    pub start: usize,
    pub end: usize,
}

/// The rules, window by window.
#[derive(Default)]
pub struct Segmenter {
    /// Where the next window begins.
    position: usize,
    /// Where the speech began that goes on.
    start: Option<usize>,
    /// Where in it a silence began that goes on.
    silence: Option<usize>,
    found: Vec<Speech>,
}

impl Segmenter {
    pub fn push(&mut self, probability: f32) {
        let (position, probability) = (self.position, f64::from(probability));
        self.position += STEP;
        if probability >= THRESHOLD {
            self.silence = None;
            self.start.get_or_insert(position);
        } else if let Some(start) = self.start
            && probability < SILENCE_THRESHOLD
        {
            let end = *self.silence.get_or_insert(position);
            if position - end >= MIN_SILENCE {
                self.found(start, end);
                (self.start, self.silence) = (None, None);
            }
        }
    }

    /// All speech in a recording of `total` samples, in order.
    pub fn finish(mut self, total: usize) -> Vec<Speech> {
        if let Some(start) = self.start {
            self.found(start, total);
        }
        for speech in &mut self.found {
            speech.start = speech.start.saturating_sub(PAD);
            speech.end = (speech.end + PAD).min(total);
        }
        self.found
    }

    fn found(&mut self, start: usize, end: usize) {
        if end.saturating_sub(start) > MIN_SPEECH {
            self.found.push(Speech { start, end });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a recording of whole windows, each as likely as this.
    fn found(windows: &[f32]) -> Vec<(usize, usize)> {
        let mut segmenter = Segmenter::default();
        windows.iter().for_each(|probability| segmenter.push(*probability));
        let found = segmenter.finish(windows.len() * STEP);
        found.iter().map(|speech| (speech.start, speech.end)).collect()
    }

    #[test]
    fn speech_is_padded_within_the_recording() {
        assert_eq!(found(&[0.9; 10]), [(0, 10 * STEP)]);
        let windows = [[0.1; 5], [0.9; 5], [0.9; 5], [0.1; 5]].concat();
        assert_eq!(found(&windows), [(5 * STEP - PAD, 15 * STEP + PAD)]);
    }

    #[test]
    fn short_speech_does_not_count_and_short_silence_does_not_end_it() {
        // Seven windows are 224 ms, eight 256.
        assert_eq!(found(&[[0.9; 7], [0.1; 7]].concat()), []);
        assert_eq!(found(&[[0.9; 8], [0.1; 8]].concat()), [(0, 8 * STEP + PAD)]);
        // After three windows of silence, 96 ms, speech goes on; after five it is another.
        let pause = |windows: usize| [vec![0.9; 10], vec![0.1; windows], vec![0.9; 10]].concat();
        assert_eq!(found(&pause(3)), [(0, 23 * STEP)]);
        assert_eq!(found(&pause(5)), [(0, 10 * STEP + PAD), (15 * STEP - PAD, 25 * STEP)]);
    }

    #[test]
    fn between_the_thresholds_goes_on_what_was() {
        assert_eq!(found(&[0.45; 20]), []);
        assert_eq!(found(&[[0.5; 10], [0.36; 10]].concat()), [(0, 20 * STEP)]);
        // Silence that is not certain throughout is silence from its first certain window on.
        let windows = [vec![0.9; 10], vec![0.1], vec![0.4; 3], vec![0.1]].concat();
        assert_eq!(found(&windows), [(0, 10 * STEP + PAD)]);
    }
}
