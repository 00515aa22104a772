//! A run whose operators are on a device that works by itself: the host goes ahead of it, within a bound.
//!
//! What has been begun there is ended before the job makes way, so that a lane given up is a device that is free, and
//! before the run is left in any way, so that nothing there still reads what the host lets go.

use std::any::Any;
use std::panic::resume_unwind;

use tract_onnx::prelude::{TVec, TValue};

use super::{Accelerator, failed};
use crate::Error;
use crate::backend::Between;

/// Between the operators of a run, on whichever device.
pub(super) struct Away<'a> {
    accelerator: Option<&'a dyn Accelerator>,
    between: &'a mut dyn Between,
    /// Operators that may not have ended.
    begun: usize,
    /// What the run was to hold while the last of them ran.
    bytes: u64,
}

impl<'a> Away<'a> {
    pub fn new(accelerator: Option<&'a dyn Accelerator>, between: &'a mut dyn Between) -> Self {
        Self { accelerator, between, begun: 0, bytes: 0 }
    }

    /// The outputs, in host memory, once all has ended.
    pub fn bring_back(&mut self, outputs: TVec<TValue>) -> Result<TVec<TValue>, Error> {
        let Some(accelerator) = self.accelerator else { return Ok(outputs) };
        let outputs = outputs.into_iter().map(|output| accelerator.bring_back(output).map_err(failed));
        let outputs = outputs.collect::<Result<_, _>>()?;
        self.end()?;
        Ok(outputs)
    }

    /// What an operator's panic means. One that nobody knows goes on.
    pub fn of_panic(&self, panic: Box<dyn Any + Send>) -> Error {
        match self.accelerator.and_then(|accelerator| accelerator.of_panic(&*panic, self.bytes)) {
            Some(error) => error,
            None => resume_unwind(panic),
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        self.begun = 0;
        self.accelerator.map_or(Ok(()), Accelerator::synchronize)
    }
}

impl Between for Away<'_> {
    fn before(&mut self, bytes: u64) -> Result<(), Error> {
        if let Some(accelerator) = self.accelerator
            && self.begun > 0
            && (self.begun >= accelerator.outstanding() || self.between.will_wait())
        {
            self.end()?;
        }
        self.between.before(bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    fn after(&mut self, bytes: u64) {
        self.begun += 1;
        self.between.after(bytes);
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        // A run that is left in the middle. What the device has against it, it will say again to whoever is next.
        if self.accelerator.is_some()
            && let Err(error) = self.end()
        {
            tracing::warn!(%error, "the device did not end what a job had begun");
        }
    }
}
