//! What turns model bytes into a graph and runs it. One engine today; the traits are where another one fits.

mod tract;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::examine::Report;
use crate::model::{Format, Signature};
use crate::tensor::Tensor;

pub(crate) use tract::{Accelerator, ENGINE, Tract};

/// The shapes of all inputs, in the signature's order.
pub(crate) type Shapes = Vec<Vec<usize>>;

/// Plans that a graph which is prepared per shape keeps.
pub(crate) const MAX_PLANS: usize = 8;

/// An engine. Its calls may take long and may panic on hostile bytes: the door makes them on a thread of their own.
pub(crate) trait Backend: Send + Sync {
    /// Reads a model.
    fn parse(&self, format: Format, bytes: &[u8]) -> Result<Box<dyn Parsed>, Error>;

    /// Parses, prepares and dry-runs a model that nobody has looked at yet, for inputs of these shapes. Does all that
    /// `parse`, and `prepare` with these shapes, will do. May use any amount of memory and time on hostile bytes.
    fn examine(&self, format: Format, bytes: &[u8], shapes: Option<&[Vec<usize>]>) -> Result<Report, Error>;
}

/// A model that has been read and understood, in host memory.
pub(crate) trait Parsed: Send + Sync {
    /// Bytes of its constants.
    fn bytes(&self) -> u64;

    /// The model on the device.
    fn prepare(&self) -> Result<Box<dyn Graph>, Error>;
}

/// A model on a device.
pub(crate) trait Graph: Send + Sync {
    fn signature(&self) -> &Signature;

    /// What runs it on inputs of these shapes, if that is there already.
    ///
    /// # Errors
    /// Why it does not run on them, if that is known already.
    fn ready(&self, inputs: &[Tensor]) -> Result<Option<Arc<dyn Plan>>, Error>;

    /// The same, made first if it is not there. May take as long as a load, and needs no lane. Called by one at a time.
    ///
    /// `book` is told the bytes of the constants of a plan that has been made for these shapes alone, and gives what is to
    /// be let go with the plan, whoever has it last.
    ///
    /// # Errors
    /// What the engine has against these shapes; what `book` says. There is no new plan then.
    fn prepare(&self, shapes: Shapes, book: &mut Book<'_>) -> Result<Arc<dyn Plan>, Error>;

    /// Whether `prepare` goes through the whole model again for shapes that it has not seen, with all that a hostile
    /// model can do then.
    fn made_per_shape(&self) -> bool;

    /// Bytes of its constants, if it has the same for all shapes.
    fn weights(&self) -> Option<u64>;

    /// The inputs' shapes with one element along each axis that varies: those of an examination that was given none.
    fn single(&self) -> Shapes;

    /// Operators that run on the CPU though the graph is on another device, with their names in the model.
    fn host_operators(&self) -> Vec<String>;
}

/// What a new plan is announced to.
pub(crate) type Book<'a> = dyn FnMut(u64) -> Result<Box<dyn Any + Send + Sync>, Error> + 'a;

/// A graph prepared for inputs of certain shapes. One plan serves any number of runs at once.
pub(crate) trait Plan: Send + Sync {
    /// How long the last run took, where all runs do the same work, whatever the data.
    fn steady(&self) -> Option<Duration>;

    /// Runs the graph once. `inputs` are in the signature's order and fit it; the outputs come in its order.
    ///
    /// `between` is asked before each operator, and told after it.
    fn run(&self, inputs: Vec<Tensor>, between: &mut dyn Between) -> Result<Vec<Tensor>, Error>;
}

/// Who stands between a graph's operators.
pub(crate) trait Between {
    /// An operator is about to run. `bytes` is what the run holds while it does: the tensors that live, and what the
    /// operator writes. May wait.
    ///
    /// # Errors
    /// Why it must not. The run ends with this error.
    fn before(&mut self, bytes: u64) -> Result<(), Error>;

    /// Whether the next `before` will wait, as far as can be told now. What the run has begun and not ended, on a device
    /// that works by itself, is to be ended before that.
    fn will_wait(&mut self) -> bool {
        false
    }

    /// The operator is done, and `bytes` are in the tensors that live on.
    fn after(&mut self, bytes: u64);
}

/// Nobody.
pub(crate) struct Nobody;

impl Between for Nobody {
    fn before(&mut self, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn after(&mut self, _: u64) {}
}
