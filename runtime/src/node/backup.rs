//! Backups of what this server keeps.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::Node;
use crate::audit::Actor;
use crate::http::problem::{Code, Problem};
use crate::store::Snapshot;

impl Node {
    /// A place for one backup: each takes room on the disk for a copy of the database.
    ///
    /// # Errors
    /// When one is under way.
    pub fn backup(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let detail = "a backup is under way, and there is one at a time";
        Arc::clone(&self.backups)
            .try_acquire_owned()
            .map_err(|_| Problem::new(Code::ServerOverloaded, detail))
    }

    /// All that is kept, as of one moment between two changes. The audit log tells who took it.
    ///
    /// # Errors
    /// When the disk has no room, or cannot be written.
    pub async fn snapshot(&self, by: &Actor) -> Result<Snapshot, Problem> {
        let _change = self.change_by(by).await?;
        self.store.change().await?.commit(by).await?;
        Ok(self.store.snapshot().await?)
    }
}
