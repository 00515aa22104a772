//! The model, asked window by window about samples that stream by.

use weir_sdk::{Error, Model, Tensor};

use crate::speech::{Segmenter, Speech};
use crate::windows::{WINDOW, Windows};

pub struct Detector {
    windows: Windows,
    asked: Asked,
}

/// The model, and what became of its answers.
struct Asked {
    model: Model,
    /// What the model keeps from one window for the next, f32 [2, 1, 128]. It stays on the host.
    state: Option<Tensor>,
    segmenter: Segmenter,
    probabilities: Option<Vec<f32>>,
}

impl Detector {
    /// With the model's state of silence; its probabilities are kept if `with_probabilities`.
    pub fn open(with_probabilities: bool) -> Result<Self, Error> {
        let asked = Asked {
            model: Model::open("silero-vad")?,
            state: Some(Tensor::new(&[2, 1, 128], &[0f32; 2 * 128])?),
            segmenter: Segmenter::default(),
            probabilities: with_probabilities.then(Vec::new),
        };
        Ok(Self { windows: Windows::new(), asked })
    }

    pub fn push(&mut self, samples: &[f32]) -> Result<(), Error> {
        self.windows.push(samples, |window| self.asked.window(window))
    }

    /// The speech in a recording of `total` samples, and the probabilities of its windows if they were kept.
    pub fn finish(mut self, total: usize) -> Result<(Vec<Speech>, Option<Vec<f32>>), Error> {
        if let Some(last) = self.windows.finish() {
            self.asked.window(&last)?;
        }
        Ok((self.asked.segmenter.finish(total), self.asked.probabilities))
    }
}

impl Asked {
    /// Asks the model: `input` f32 [1, 576] and `state` f32 [2, 1, 128] in, `output` f32 [1, 1] (a probability)
    /// and the next `stateN` out.
    fn window(&mut self, window: &[f32]) -> Result<(), Error> {
        let mismatch = |detail: &str| Error::new(500, "model_mismatch", detail);
        let state = self.state.take().ok_or_else(|| mismatch("the model's last run gave no state"))?;
        let input = Tensor::new(&[1, WINDOW], window)?;
        let mut outputs = self.model.run([("input", input), ("state", state)])?;
        let output: Vec<f32> = outputs.get("output")?.to_vec()?;
        let probability = *output.first().ok_or_else(|| mismatch("the model's `output` is empty"))?;
        self.state = Some(outputs.take("stateN")?);
        self.segmenter.push(probability);
        if let Some(probabilities) = &mut self.probabilities {
            probabilities.push(probability);
        }
        Ok(())
    }
}
