//! What a model may need, and who looks at it first.
//!
//! Models are bytes of tenants who may mean harm: one can be made to ask for any amount of memory or time while it is
//! opened, and an allocation that fails ends the process it is in. So each model is opened first where that does no
//! harm, by an [`Examiner`] (in the server, one that starts a process with limits and lets it die), and the server
//! opens only what came through. Opening is deterministic: what passes there passes here.

use std::thread;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::backend::{Backend, Tract};
use crate::model::{Format, ModelSource, Signature};

/// The engine and its version. A model that another engine has examined is examined again.
pub const ENGINE: &str = crate::backend::ENGINE;

/// Stack of the thread that examines: half of what the threads have that load and run models here. A model can make the
/// engine recurse, and a stack that overflows ends the process: where there is enough of it here, there is enough there.
const STACK: usize = 1 << 20;

/// What a model may need. Set by the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelLimits {
    /// The most bytes planned at one time: weights and live tensors.
    pub memory: u64,
    /// The most multiply-adds of one operator, or elements it reads or writes where those are more. An operator cannot
    /// be stopped while it runs.
    pub operator_cost: u64,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self { memory: 4 << 30, operator_cost: 1_000_000_000_000 }
    }
}

/// What examining a model found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub signature: Signature,
    /// The most bytes planned at one time, for the shapes that were looked at; 0 if the model takes no shapes that can
    /// be made up.
    pub memory: u64,
    /// The multiply-adds of the costliest operator, for the shapes that were looked at; 0 like `memory`.
    pub operator_cost: u64,
}

/// Opens untrusted bytes: parses, refuses, optimises, plans, runs once on zeros. For a process that may die: on hostile
/// bytes it may take any amount of memory and time. Works on a thread of its own, whose stack is smaller than that of the
/// threads that load and run models: those must have 2 MiB, which is what tokio gives them.
///
/// `shapes` are the inputs' shapes, in the signature's order. Without them, one element is looked at along each axis
/// that varies.
///
/// # Errors
/// What the server would answer too: [`Error::InvalidModel`], [`Error::ModelMemory`], [`Error::OperatorCost`],
/// [`Error::Unbounded`], [`Error::EnginePanic`]; [`Error::InvalidInputs`] and [`Error::InvalidInput`] for `shapes` that
/// the model does not take; [`Error::Died`] if there is no thread to be had. What the engine says of the zeros is no
/// error: they are made up.
pub fn examine(
    format: Format,
    bytes: &[u8],
    shapes: Option<&[Vec<usize>]>,
    limits: &ModelLimits,
) -> Result<Report, Error> {
    let examine = || Tract { limits: *limits, accelerator: None }.examine(format, bytes, shapes);
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("examine".to_owned()).stack_size(STACK);
        match thread.spawn_scoped(scope, examine) {
            Ok(examining) => examining.join().unwrap_or_else(|panic| Err(Error::from_panic(&*panic))),
            Err(error) => Err(Error::Died(format!("no thread for it: {error}"))),
        }
    })
}

/// Opens untrusted models somewhere they can do no harm, before this process does.
pub trait Examiner: Send + Sync {
    /// Like [`examine`]; [`Error::Died`] if the place where it was opened did not survive it.
    fn examine(
        &self,
        model: &ModelSource,
        shapes: Option<Vec<Vec<usize>>>,
    ) -> BoxFuture<'static, Result<Report, Error>>;
}

/// Examines in this process, which a hostile model can end: for tests and tools.
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess(pub ModelLimits);

impl Examiner for InProcess {
    fn examine(
        &self,
        model: &ModelSource,
        shapes: Option<Vec<Vec<usize>>>,
    ) -> BoxFuture<'static, Result<Report, Error>> {
        let (limits, model) = (self.0, model.clone());
        let work = move || examine(model.format, &model.read()?, shapes.as_deref(), &limits);
        let done = tokio::task::spawn_blocking(work);
        done.map(|result| result.unwrap_or_else(|error| Err(Error::from_join(error)))).boxed()
    }
}
