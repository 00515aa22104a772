//! What is kept as of one moment, held while it is copied elsewhere, whatever changes meanwhile.

use std::path::PathBuf;

use tempfile::TempDir;

use super::{Store, StoreError, database};

/// A copy of the database and links to all blobs, gone when it is dropped. The bytes of blobs never change, so what is
/// linked is what was there, also when its name has gone.
pub struct Snapshot {
    folder: TempDir,
    /// Digests, and their bytes' number, in order.
    pub blobs: Vec<(String, u64)>,
    /// RFC 3339.
    pub created: String,
}

impl Snapshot {
    /// The database's name in a data directory.
    pub const DATABASE: &str = database::FILE;

    /// A blob's name in a data directory.
    pub fn blob(digest: &str) -> String {
        format!("blobs/{digest}")
    }

    /// Where a file of a data directory's is in the snapshot.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn database(&self) -> PathBuf {
        self.path(Self::DATABASE)
    }
}

impl Store {
    /// Takes a snapshot. Only for who keeps changes from being made meanwhile.
    ///
    /// # Errors
    /// When the disk has no room for a copy of the database, or cannot be written.
    pub async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let folder = tempfile::Builder::new().prefix("backup-").tempdir_in(self.root.join("tmp"))?;
        database::copy(&self.database, &folder.path().join(database::FILE)).await?;
        let (blobs, into) = (self.blobs.clone(), folder.path().join("blobs"));
        let linked = tokio::task::spawn_blocking(move || blobs.link(&into)).await;
        let blobs = linked.map_err(|error| StoreError::Other(error.to_string()))??;
        Ok(Snapshot { folder, blobs, created: crate::now() })
    }
}
