//! What survives a restart: bytes by their hash, and definitions in a database.
//!
//! What was acknowledged is there after a crash, and what was not leaves no half. Bytes reach the disk before the
//! definition that names them: each file appears whole by rename, after its bytes and before its folder are synced. A
//! definition changes in one transaction, which is on disk when it returns. Bytes that a crash left without a definition are
//! swept at the next start. One server uses a data directory at a time. What is in it is for nobody else's eyes: folders that
//! are made here are 0700, files 0600.
//!
//! ```text
//! weir.db                            definitions: a table per kind, by tenant and name, as JSON with a version; the audit log
//! blobs/{digest}                     a component's or model's bytes
//! artifacts/{engine}/{digest}.cwasm  precompiled code, with its MAC beside it; made again when missing
//! key                                what the MACs are made with; a secret
//! logs/{tenant}/{function}.jsonl
//! usage/{number}.log                 usage records; see `meter/ledger/`
//! tmp/                               uploads under way; emptied at start
//! lock                               held by the server that runs
//! index                              a note for older versions; index.migrated is what they had left there
//! ```
//!
//! `database.rs` opens the database and knows its kind; `index.rs` reads definitions; `change.rs` changes them, and tells of it
//! in the audit log; `forward.rs` reads what older versions have left; `usage.rs` has sums of usage; `uses.rs` has when keys were
//! used; `spent.rs` has usage as money is made of it; `probe.rs` tells whether all of it can be written; `blobs.rs` has the
//! bytes; `snapshot.rs` holds all of it as of one moment.

mod blobs;
mod change;
mod database;
mod error;
mod forward;
mod index;
mod probe;
mod snapshot;
mod spent;
mod usage;
mod uses;
mod webhook;

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

pub use blobs::{Blobs, ReceiveError, Received};
pub use change::{Line, Search};
pub use error::StoreError;
pub use forward::Kind;
pub use index::{Index, Kept, Record};
pub use snapshot::Snapshot;
pub use usage::{Enough, usage_of};

use database::Pool;
use probe::Probe;

/// A data directory that this server holds.
pub struct Store {
    root: PathBuf,
    pub blobs: Blobs,
    database: Pool,
    probe: Probe,
    lock: File,
}

/// Bytes on disk.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Of the database and its write-ahead log.
    pub database: u64,
    /// What the file system has left for this server, and what it has in all.
    pub free: u64,
    pub disk: u64,
}

impl Store {
    /// Opens a data directory, or makes one. Definitions of these kinds are taken over from an older version's.
    ///
    /// # Errors
    /// When another server has it, when a newer version has written it, when what an older one has left cannot be
    /// understood, or when it cannot be read or written; the text names the file or folder.
    pub async fn open(root: &Path, kinds: &[Kind]) -> anyhow::Result<Self> {
        make_folder(root).with_context(|| format!("the data directory {} cannot be made", root.display()))?;
        let lock = lock(root)?;
        let tmp = root.join("tmp");
        match fs::remove_dir_all(&tmp) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{} cannot be emptied", tmp.display()));
            }
            _ => make_folder(&tmp)?,
        }
        let blobs = Blobs::open(root.join("blobs"), tmp)?;
        let database = database::open(root).await?;
        forward::migrate(root, &database, kinds).await?;
        sync_folder(root)?;
        Ok(Self { root: root.to_owned(), blobs, database, probe: Probe::default(), lock })
    }

    /// Lets another server have the data directory. Changes find the store closed from then on.
    pub async fn close(&self) {
        self.database.close().await;
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "the data directory stays locked until this process ends");
        }
    }

    /// The index of one kind of definition.
    pub fn index<T: Record>(&self) -> Index<T> {
        Index::new(self.database.clone())
    }

    /// That changes can be written, as of a few seconds ago at most.
    ///
    /// # Errors
    /// Why they cannot.
    pub async fn can_write(&self) -> Result<(), String> {
        self.probe.ask(|| probe::write(self.database.clone(), self.root.join("tmp"))).await
    }

    /// What the database has of its disk, and how much of that is left. None where the disk does not tell.
    pub async fn sizes(&self) -> Option<Sizes> {
        let root = self.root.clone();
        let look = move || {
            let of = |file: &str| fs::metadata(root.join(file)).map_or(0, |file| file.len());
            let database = [database::FILE, database::LOG].into_iter().map(of).sum();
            let disk = rustix::fs::statvfs(&root).ok()?;
            let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
            Some(Sizes { database, free: bytes(disk.f_bavail), disk: bytes(disk.f_blocks) })
        };
        tokio::task::spawn_blocking(look).await.ok().flatten()
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

    /// Removes the logs of functions that are not there: what a crash in the middle of a removal leaves.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sweep_logs(&self, is_there: impl Fn(&str, &str) -> bool) -> io::Result<()> {
        let tenants = match fs::read_dir(self.root.join("logs")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            tenants => tenants?,
        };
        for tenant in tenants {
            let tenant = tenant?;
            let name = tenant.file_name();
            // A function's name has no dot.
            let function = |file: &str| file.split('.').next().unwrap_or(file).to_owned();
            let keep = |file: &str| name.to_str().is_some_and(|tenant| is_there(tenant, &function(file)));
            sweep(&tenant.path(), keep)?;
        }
        Ok(())
    }

    pub fn log(&self, tenant: &str, function: &str) -> PathBuf {
        self.root.join("logs").join(tenant).join(format!("{function}.jsonl"))
    }
}

/// Takes a data directory for as long as the file is open.
///
/// # Errors
/// When another server has it, or it cannot be written.
pub fn lock(root: &Path) -> anyhow::Result<File> {
    let mut private = OpenOptions::new();
    let lock = private
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(root.join("lock"))
        .with_context(|| format!("the data directory {} cannot be written", root.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            bail!("another server has the data directory {}; stop it, or use --data-dir", root.display())
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("{} cannot be locked", root.display()))
        }
    }
}

/// Makes sure that the database in a folder is one that this version knows, and brings it up to date.
///
/// # Errors
/// A file that is no database; a schema that this version does not know.
pub async fn check(root: &Path) -> anyhow::Result<()> {
    database::open(root).await?.close().await;
    Ok(())
}

/// Makes a folder, and those that it is in, where they are not there. Only their owner may look into them.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
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
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_data_directory_is_one_servers_until_it_closes() {
        let data = tempfile::tempdir().unwrap();
        let first = Store::open(data.path(), &[]).await.unwrap();
        let refusal = Store::open(data.path(), &[]).await.err().unwrap().to_string();
        assert!(refusal.contains("another server has the data directory"), "{refusal}");
        first.close().await;
        assert!(first.can_write().await.is_err(), "closed");
        Store::open(data.path(), &[]).await.unwrap();
    }

    #[tokio::test]
    async fn logs_of_functions_that_are_gone_are_swept() {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(data.path(), &[]).await.unwrap();
        store.sweep_logs(|_, _| false).unwrap();
        let (kept, gone) = (store.log("t", "kept"), store.log("t", "gone"));
        fs::create_dir_all(kept.parent().unwrap()).unwrap();
        for path in [&kept, &kept.with_extension("old.jsonl"), &gone, &gone.with_extension("old.jsonl")] {
            fs::write(path, "").unwrap();
        }
        store.sweep_logs(|tenant, function| (tenant, function) == ("t", "kept")).unwrap();
        assert!(kept.exists() && kept.with_extension("old.jsonl").exists());
        assert!(!gone.exists() && !gone.with_extension("old.jsonl").exists());
    }
}
