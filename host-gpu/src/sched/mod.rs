//! Whose turn it is on a device.

pub(crate) mod batch;
pub(crate) mod fair;
pub(crate) mod lane;
pub(crate) mod quarantine;
pub(crate) mod queue;
pub(crate) mod times;

/// How urgent a job is. A job of an earlier class goes before all waiting jobs of later ones, but for the share that
/// these have at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Class {
    Critical,
    #[default]
    Standard,
    Batch,
}
