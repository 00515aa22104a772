//! What the model is fed: 512 new samples each time, after the last 64 of those before.

/// The samples of a window that are new.
pub const STEP: usize = 512;

/// The samples of a window that were in the window before: silence in the first.
const CONTEXT: usize = 64;

/// The samples of a window.
pub const WINDOW: usize = CONTEXT + STEP;

/// Samples that stream by, in windows.
pub struct Windows {
    /// The beginning of the next window.
    window: Vec<f32>,
}

impl Windows {
    pub fn new() -> Self {
        Self { window: vec![0.0; CONTEXT] }
    }

    /// Takes samples, and gives each window that is whole with them to `each`.
    pub fn push<E>(
        &mut self,
        mut samples: &[f32],
        mut each: impl FnMut(&[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        while !samples.is_empty() {
            let (now, later) = samples.split_at(samples.len().min(WINDOW - self.window.len()));
            self.window.extend_from_slice(now);
            samples = later;
            if self.window.len() == WINDOW {
                each(&self.window)?;
                self.window.drain(..STEP);
            }
        }
        Ok(())
    }

    /// The last window, filled up with silence; `None` if there is nothing new in it.
    pub fn finish(mut self) -> Option<Vec<f32>> {
        if self.window.len() == CONTEXT {
            return None;
        }
        self.window.resize(WINDOW, 0.0);
        Some(self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_overlap_by_their_context_however_the_samples_are_cut() {
        let samples: Vec<f32> = (1..=1500u16).map(f32::from).collect();
        for piece in [1, 100, STEP, WINDOW, 1500] {
            let (mut windows, mut seen) = (Windows::new(), vec![]);
            for samples in samples.chunks(piece) {
                let each = |window: &[f32]| -> Result<(), ()> {
                    seen.push(window.to_vec());
                    Ok(())
                };
                windows.push(samples, each).unwrap();
            }
            seen.extend(windows.finish());
            assert_eq!(seen.len(), 3);
            assert_eq!(seen[0], [&[0.0; CONTEXT], &samples[..STEP]].concat());
            assert_eq!(seen[1], samples[STEP - CONTEXT..2 * STEP]);
            let last = &samples[2 * STEP - CONTEXT..];
            assert_eq!(seen[2], [last, &vec![0.0; WINDOW - last.len()]].concat());
        }
    }

    #[test]
    fn whole_windows_leave_nothing() {
        let mut windows = Windows::new();
        windows.push(&[0.5; 2 * STEP], |_| Ok::<(), ()>(())).unwrap();
        assert_eq!(windows.finish(), None);
        assert_eq!(Windows::new().finish(), None);
    }
}
