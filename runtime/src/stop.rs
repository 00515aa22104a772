//! The end of a server, in steps: it says that it is about to stop and serves on, it takes no more connections and lets what
//! is under way end, and what has not ended in time is cut.

use tokio_util::sync::CancellationToken;

/// The steps, each cancelled when it is taken.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// The server is told to stop: it is not ready any more.
    pub asked: CancellationToken,
    /// No more connections are taken, and those that are there end with their request.
    pub ended: CancellationToken,
    /// Nothing is waited for any longer.
    pub cut: CancellationToken,
}
