//! What turns model bytes into a graph and runs it. One engine today; the traits are where another one fits.

mod tract;

use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::model::{Format, Signature};
use crate::tensor::Tensor;

pub(crate) use tract::Tract;

/// An engine. Its calls may take long and may panic on hostile bytes: the door makes them on a thread of their own.
pub(crate) trait Backend: Send + Sync {
    /// Parses and prepares a model.
    fn load(&self, format: Format, bytes: &[u8]) -> Result<Arc<dyn Graph>, Error>;
}

/// Whether a graph can run on inputs of some shapes.
pub(crate) enum Readiness {
    /// It has to be prepared for them first.
    Unprepared,
    Ready,
    /// All runs on them do the same work, whatever the data, and the last one took so long.
    Steady(Duration),
}

/// A model prepared to run. One graph serves any number of runs at once.
pub(crate) trait Graph: Send + Sync {
    fn signature(&self) -> &Signature;

    fn readiness(&self, inputs: &[Tensor]) -> Readiness;

    /// Makes it ready for inputs of these shapes. May take as long as a load, and needs no lane.
    fn prepare(&self, inputs: &[Tensor]) -> Result<(), Error>;

    /// Runs the graph once. `inputs` are in the signature's order and fit it; the outputs come in its order.
    ///
    /// `checkpoint` is called before each operator; an error from it ends the run and is returned.
    fn run(
        &self,
        inputs: Vec<Tensor>,
        checkpoint: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Vec<Tensor>, Error>;
}
