//! The same model on the same device, on the direct engine: without a door, a tenant or a book.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Context;
use tract_onnx::prelude::{Runnable, TValue, TVec, TractError, tvec};
use tract_onnx::tract_core::plan::eval;
use weir_gpu::{DeviceKind, Tensor};

use crate::door;
use crate::table::{median, millis};
use crate::{cuda, models::Case};

/// A model prepared for one input. All calls on one thread.
pub struct Twin {
    kind: DeviceKind,
    runnable: Box<dyn Runnable>,
    input: TValue,
}

impl Twin {
    /// # Errors
    /// What the engine has against it.
    pub fn new(kind: DeviceKind, case: &Case, input: &Tensor) -> anyhow::Result<Self> {
        let (runnable, input) = match kind {
            DeviceKind::Cpu => {
                let (model, input) = door::bare(&case.bytes, input)?;
                (Box::new(model) as Box<dyn Runnable>, input)
            }
            DeviceKind::Gpu => cuda::prepare(&case.bytes, input)?,
        };
        let twin = Self { kind, runnable, input };
        twin.run()?;
        Ok(twin)
    }

    /// One run, to its outputs in host memory.
    pub fn run(&self) -> anyhow::Result<TVec<TValue>> {
        let outputs = self.runnable.run(tvec!(self.input.clone()))?;
        // From a GPU, the bytes come when somebody reads them.
        for output in &outputs {
            black_box(output.as_bytes().first());
        }
        Ok(outputs)
    }

    /// How long one run takes: on a GPU by events on its stream, on a CPU by the clock.
    pub fn timed(&self) -> anyhow::Result<Duration> {
        match self.kind {
            DeviceKind::Cpu => {
                let began = Instant::now();
                self.run()?;
                Ok(began.elapsed())
            }
            DeviceKind::Gpu => cuda::timed(|| self.run().map(|_| ())),
        }
    }

    /// Milliseconds of the operator that takes longest, each waited for; the median of five runs. Nobody is let in before
    /// such a one ends.
    pub fn longest_operator(&self) -> anyhow::Result<f64> {
        let plan = self.runnable.typed_plan().context("the engine does not show its plan")?;
        let mut longest = vec![];
        for _ in 0..5 {
            let mut most = Duration::ZERO;
            plan.spawn()?.run_plan_with_eval(
                tvec!(self.input.clone()),
                |context, state, node, inputs| -> Result<_, TractError> {
                    let began = Instant::now();
                    let outputs = eval(context, state, node, inputs)?;
                    if self.kind == DeviceKind::Gpu {
                        cuda::wait()?;
                    }
                    most = most.max(began.elapsed());
                    Ok(outputs)
                },
            )?;
            longest.push(millis(most));
        }
        Ok(median(&longest))
    }
}
