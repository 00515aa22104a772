//! A run whose operators are on a device that works by itself: the host goes ahead of it, within a bound.
//!
//! What has been begun there is ended before the job makes way, so that a lane given up is a device that is free, and
//! before the run is left in any way, so that nothing there still reads what the host lets go.

use std::any::Any;
use std::panic::resume_unwind;

use tract_onnx::prelude::{TValue, TVec};

use super::{Accelerator, EngineError, failed};
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
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        match text.and_then(|text| self.of_failure(text)) {
            Some(error) => error,
            None => resume_unwind(panic),
        }
    }

    /// What an operator's error means.
    pub fn of_error(&self, error: EngineError) -> Error {
        let known = self.of_failure(&format!("{error:#}"));
        known.unwrap_or_else(|| failed(error))
    }

    fn of_failure(&self, text: &str) -> Option<Error> {
        self.accelerator.and_then(|accelerator| accelerator.of_failure(text, self.bytes))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use tract_onnx::prelude::{TractResult, TypedModel};

    use crate::backend::tract::demand::Node;

    #[derive(Default)]
    struct Device(Mutex<Vec<&'static str>>);

    impl Accelerator for Device {
        fn translate(&self, model: TypedModel) -> Result<TypedModel, Error> {
            Ok(model)
        }

        fn host_operators(&self, _: &TypedModel) -> Vec<String> {
            vec![]
        }

        fn check(&self, _: &TypedModel, _: &Node, _: &[TValue]) -> Result<(), Error> {
            Ok(())
        }

        fn enter(&self) {}

        fn outstanding(&self) -> usize {
            3
        }

        fn synchronize(&self) -> Result<(), Error> {
            self.0.lock().unwrap().push("end");
            Ok(())
        }

        fn bring_back(&self, value: TValue) -> TractResult<TValue> {
            Ok(value)
        }

        fn of_failure(&self, text: &str, bytes: u64) -> Option<Error> {
            (text == "no memory").then_some(Error::DeviceMemory { requested: bytes, used: 1, limit: 2 })
        }
    }

    struct Job<'a> {
        device: &'a Device,
        waits_at: usize,
        operators: usize,
    }

    impl Between for Job<'_> {
        fn before(&mut self, _: u64) -> Result<(), Error> {
            self.operators += 1;
            self.device.0.lock().unwrap().push("operator");
            Ok(())
        }

        fn will_wait(&mut self) -> bool {
            self.operators == self.waits_at
        }

        fn after(&mut self, _: u64) {}
    }

    fn run(operators: usize, waits_at: usize) -> String {
        let device = Device::default();
        let mut job = Job { device: &device, waits_at, operators: 0 };
        let mut away = Away::new(Some(&device), &mut job);
        for _ in 0..operators {
            away.before(1).unwrap();
            away.after(0);
        }
        drop(away);
        device.0.into_inner().unwrap().iter().map(|what| &what[..1]).collect()
    }

    #[test]
    fn all_ends_at_the_bound_before_waiting_and_when_the_run_is_left() {
        const NEVER: usize = usize::MAX;
        assert_eq!(run(7, NEVER), "oooeoooeoe");
        assert_eq!(run(4, 1), "oeoooe", "before it waits");
        assert_eq!(run(0, NEVER), "e");
    }

    #[test]
    fn a_panic_that_the_device_knows_is_an_error_of_the_operators_bytes() {
        let device = Device::default();
        let mut job = Job { device: &device, waits_at: 0, operators: 0 };
        let mut away = Away::new(Some(&device), &mut job);
        away.before(42).unwrap();
        let known = away.of_panic(Box::new("no memory"));
        assert_eq!(known, Error::DeviceMemory { requested: 42, used: 1, limit: 2 });
        assert_eq!(away.of_error(EngineError::msg("no memory")), known);
        assert_eq!(away.of_error(EngineError::msg("else")), Error::Engine("else".to_owned()));
        let unknown = std::panic::AssertUnwindSafe(|| away.of_panic(Box::new("else")));
        assert_eq!(std::panic::catch_unwind(unknown).unwrap_err().downcast_ref(), Some(&"else"));
    }
}
