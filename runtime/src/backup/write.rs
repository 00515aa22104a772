//! Makes a backup of a snapshot.

use std::fs::File;
use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

use super::{DIGEST, Entry, FORMAT, MANIFEST, Manifest, end, header};
use crate::store::Snapshot;

/// A backup that is about to be written.
pub struct Backup {
    snapshot: Snapshot,
    manifest: Manifest,
    /// The manifest, as it is written.
    json: Vec<u8>,
    end: u64,
}

impl Backup {
    /// # Errors
    /// When the disk cannot give the snapshot's database.
    pub fn new(snapshot: Snapshot) -> io::Result<Self> {
        let mut database = Hashed::new(File::open(snapshot.database())?);
        let bytes = io::copy(&mut database, &mut io::sink())?;
        let database = Entry { name: Snapshot::DATABASE.to_owned(), bytes, sha256: database.digest() };
        let blobs = snapshot.blobs.iter().map(|(digest, bytes)| Entry {
            name: Snapshot::blob(digest),
            bytes: *bytes,
            sha256: digest.clone(),
        });
        let manifest = Manifest {
            format: FORMAT,
            weir: env!("CARGO_PKG_VERSION").to_owned(),
            created: snapshot.created.clone(),
            files: std::iter::once(database).chain(blobs).collect(),
        };
        let json = serde_json::to_vec_pretty(&manifest)?;
        let end = end(&hex::encode([0; 32]))?.len() as u64;
        Ok(Self { snapshot, manifest, json, end })
    }

    /// How many bytes the archive has. Source: tar(5), blocks of 512 bytes.
    pub fn bytes(&self) -> u64 {
        let entry = |bytes: u64| bytes.div_ceil(512).saturating_add(1).saturating_mul(512);
        let files = self.manifest.files.iter().map(|file| entry(file.bytes));
        files.fold(entry(self.json.len() as u64).saturating_add(self.end), u64::saturating_add)
    }

    /// Writes the archive. What is read of the disk is held against its digest on the way.
    ///
    /// # Errors
    /// A writer that takes no more, a disk that fails, or bytes that are not what they were.
    pub fn write(self, out: impl Write) -> io::Result<()> {
        let mut archive = tar::Builder::new(Hashed::new(out));
        archive.append(&header(MANIFEST, self.json.len() as u64)?, self.json.as_slice())?;
        for file in &self.manifest.files {
            let mut whole = Hashed::new(File::open(self.snapshot.path(&file.name))?);
            archive.append(&header(&file.name, file.bytes)?, (&mut whole).take(file.bytes))?;
            if whole.digest() != file.sha256 {
                return Err(io::Error::other(format!("{} on the disk is not what it was", file.name)));
            }
        }
        let digest = archive.get_ref().digest();
        archive.append(&header(DIGEST, digest.len() as u64)?, digest.as_bytes())?;
        archive.into_inner()?.inner.flush()
    }
}

/// Bytes that go by, and their SHA-256.
pub(super) struct Hashed<T> {
    inner: T,
    hash: Sha256,
}

impl<T> Hashed<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, hash: Sha256::new() }
    }

    /// Of all bytes up to now.
    pub(super) fn digest(&self) -> String {
        hex::encode(self.hash.clone().finalize())
    }
}

impl<T: Read> Read for Hashed<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(into)?;
        self.hash.update(into.get(..bytes).unwrap_or_default());
        Ok(bytes)
    }
}

impl<T: Write> Write for Hashed<T> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let bytes = self.inner.write(from)?;
        self.hash.update(from.get(..bytes).unwrap_or_default());
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
