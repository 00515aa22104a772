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

/// A model on a device.
pub(crate) trait Graph: Send + Sync {
    fn signature(&self) -> &Signature;

    /// What runs it on inputs of these shapes, if that is there already.
    fn ready(&self, inputs: &[Tensor]) -> Option<Arc<dyn Plan>>;

    /// The same, made first if it is not there. May take as long as a load, and needs no lane.
    fn prepare(&self, inputs: &[Tensor]) -> Result<Arc<dyn Plan>, Error>;
}

/// A graph prepared for inputs of certain shapes. One plan serves any number of runs at once.
pub(crate) trait Plan: Send + Sync {
    /// How long the last run took, where all runs do the same work, whatever the data.
    fn steady(&self) -> Option<Duration>;

    /// Runs the graph once. `inputs` are in the signature's order and fit it; the outputs come in its order.
    ///
    /// `checkpoint` is called before each operator; an error from it ends the run and is returned.
    fn run(
        &self,
        inputs: Vec<Tensor>,
        checkpoint: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Vec<Tensor>, Error>;
}
