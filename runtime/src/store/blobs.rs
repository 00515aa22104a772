//! Bytes by their hash. The same bytes are kept once, whoever uploads them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::{make_folder, sweep, sync_folder};
use crate::units::Size;

#[derive(Clone)]
pub struct Blobs {
    folder: PathBuf,
    tmp: PathBuf,
}

/// An upload that is on disk but not kept yet. Dropping it forgets it.
pub struct Received {
    file: NamedTempFile,
    /// SHA-256, lower-case hex.
    pub digest: String,
    pub bytes: u64,
}

/// Why an upload was not received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error("the body is larger than {0}, the most here")]
    TooLarge(Size),
    #[error("the body ended early: {0}")]
    Broken(String),
    #[error(transparent)]
    Disk(#[from] io::Error),
}

impl Blobs {
    pub(super) fn open(folder: PathBuf, tmp: PathBuf) -> io::Result<Self> {
        make_folder(&folder)?;
        Ok(Self { folder, tmp })
    }

    pub fn path(&self, digest: &str) -> PathBuf {
        self.folder.join(digest)
    }

    /// Streams a body to disk, hashing it on the way. Holds one piece in memory at a time.
    ///
    /// # Errors
    /// A body of more than `most` bytes, one that breaks off, or a disk that cannot take it.
    pub async fn receive<E: std::fmt::Display>(
        &self,
        most: Size,
        mut body: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<Received, ReceiveError> {
        let mut file = NamedTempFile::new_in(&self.tmp)?;
        let mut hash = Sha256::new();
        let mut bytes = 0_u64;
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| ReceiveError::Broken(error.to_string()))?;
            bytes = bytes.saturating_add(piece.len() as u64);
            if bytes > most.as_u64() {
                return Err(ReceiveError::TooLarge(most));
            }
            hash.update(&piece);
            tokio::task::block_in_place(|| file.write_all(&piece))?;
        }
        Ok(Received { file, digest: hex::encode(hash.finalize()), bytes })
    }

    /// Keeps an upload for good.
    ///
    /// # Errors
    /// When the disk cannot take it; nothing is kept then.
    pub fn keep(&self, received: Received) -> io::Result<()> {
        let path = self.path(&received.digest);
        if !path.exists() {
            received.file.as_file().sync_all()?;
            received.file.persist(path).map_err(|error| error.error)?;
        }
        // Also for a file that is there: what put it there may have failed here.
        sync_folder(&self.folder)
    }

    /// Gives all bytes that are kept another name, in a folder that it makes: their digests, in order, and how many bytes each
    /// has.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(super) fn link(&self, into: &Path) -> io::Result<Vec<(String, u64)>> {
        make_folder(into)?;
        let mut linked = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let Ok(digest) = entry.file_name().into_string() else { continue };
            fs::hard_link(entry.path(), into.join(&digest))?;
            linked.push((digest, entry.metadata()?.len()));
        }
        linked.sort_unstable();
        Ok(linked)
    }

    /// Forgets all bytes but those that are `used`.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sweep(&self, used: impl Fn(&str) -> bool) -> io::Result<()> {
        sweep(&self.folder, |name| used(name))
    }

    /// Forgets bytes that nothing refers to any more; none is fine.
    pub fn remove(&self, digest: &str) {
        if let Err(error) = fs::remove_file(self.path(digest))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(digest, %error, "bytes that nothing refers to cannot be removed");
        }
    }
}

impl Received {
    /// The bytes, to be read from the start.
    ///
    /// # Errors
    /// When the disk cannot give them.
    pub fn open(&self) -> io::Result<File> {
        File::open(self.file.path())
    }

    /// Where they are until they are kept.
    pub fn path(&self) -> PathBuf {
        self.file.path().to_owned()
    }
}
