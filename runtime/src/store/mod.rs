//! What survives a restart: bytes by their hash, and a small index of definitions.
//!
//! Every file appears whole by rename, after its bytes and its folder have reached the disk, so that what was
//! acknowledged is there after a crash and what was not leaves no half; bytes that a crash left without a definition
//! are swept at the next start. One server uses a data directory at a time.
//!
//! ```text
//! blobs/{digest}                     a component's or model's bytes
//! artifacts/{engine}/{digest}.cwasm  precompiled code, with its MAC beside it; made again when missing
//! key                                what the MACs are made with; a secret
//! index/functions/{tenant}/{name}    definitions, as JSON
//! index/models/{tenant}/{name}
//! logs/{tenant}/{function}.jsonl
//! tmp/                               uploads under way; emptied at start
//! ```

mod blobs;
mod index;

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

pub use blobs::{Blobs, ReceiveError, Received};
pub use index::{Index, Record};

/// A data directory that this server holds.
pub struct Store {
    root: PathBuf,
    pub blobs: Blobs,
    lock: File,
}

impl Store {
    /// Opens a data directory, or makes one.
    ///
    /// # Errors
    /// When another server has it, or when it cannot be read or written; the text names the folder.
    pub fn open(root: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(root)
            .with_context(|| format!("the data directory {} cannot be made", root.display()))?;
        let lock = File::create(root.join("lock"))
            .with_context(|| format!("the data directory {} cannot be written", root.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another server has the data directory {}; stop it, or use --data-dir", root.display())
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("{} cannot be locked", root.display()));
            }
        }
        let tmp = root.join("tmp");
        match fs::remove_dir_all(&tmp) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{} cannot be emptied", tmp.display()));
            }
            _ => fs::create_dir_all(&tmp)?,
        }
        let blobs = Blobs::open(root.join("blobs"), tmp)?;
        Ok(Self { root: root.to_owned(), blobs, lock })
    }

    /// Lets another server have the data directory.
    pub fn unlock(&self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "the data directory stays locked until this process ends");
        }
    }

    /// The index of one kind of definition.
    ///
    /// # Errors
    /// When its folder cannot be made.
    pub fn index<T: Record>(&self) -> io::Result<Index<T>> {
        Index::open(self.root.join("index").join(T::FOLDER))
    }

    /// This data directory's secret, made at the first start.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn key(&self) -> anyhow::Result<[u8; 32]> {
        let path = self.root.join("key");
        match fs::read(&path) {
            Ok(key) => {
                let length = key.len();
                key.try_into()
                    .map_err(|_| anyhow::anyhow!("{} has {length} bytes, not 32; remove it", path.display()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = crate::random()?;
                // Readable by nobody else, as temporary files are made.
                let mut file = tempfile::NamedTempFile::new_in(&self.root)?;
                file.write_all(&key)?;
                file.as_file().sync_all()?;
                file.persist(path).map_err(|error| error.error)?;
                sync_folder(&self.root)?;
                Ok(key)
            }
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }

    pub fn artifacts(&self) -> PathBuf {
        self.root.join("artifacts")
    }

    pub fn log(&self, tenant: &str, function: &str) -> PathBuf {
        self.root.join("logs").join(tenant).join(format!("{function}.jsonl"))
    }
}

/// Removes what is in `folder`, but for what is to be kept, by name.
pub fn sweep(folder: &Path, keep: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&keep) {
            continue;
        }
        tracing::info!(path = %entry.path().display(), "removing what nothing refers to");
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Makes sure that a rename in `folder` has reached the disk.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
