//! Backups: what a data directory keeps, in one file, as of one moment.
//!
//! A backup is a tar archive, in this order:
//!
//! ```text
//! manifest.json    the format's number, who wrote it and when, and of each file its name, bytes and SHA-256
//! weir.db          the database, as of that moment
//! blobs/{digest}   the bytes of components and models, as many as there were
//! sha256           the SHA-256 of all that is before it in the archive
//! ```
//!
//! What can be made again is not in it (precompiled code), nor what is of one data directory (the key of its artifacts), nor
//! logs. Hashes of keys are in the database, so a backup is for the operator's eyes only.
//!
//! `write.rs` makes one of a snapshot of the store; `read.rs` looks at every byte of one; `restore.rs` makes a data directory
//! of one.

mod read;
mod restore;
mod write;

use std::io;

use serde::{Deserialize, Serialize};

pub use read::verify;
pub use restore::restore;
pub use write::Backup;

/// The newest format that this version knows. Another number is another layout of the archive.
const FORMAT: u32 = 1;

const MANIFEST: &str = "manifest.json";
const DIGEST: &str = "sha256";

/// The most bytes of a manifest: a million files take less.
const MANIFEST_BYTES: u64 = 256 << 20;

/// What is in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    /// The version of weir that wrote it.
    pub weir: String,
    /// The moment that it is of: RFC 3339.
    pub created: String,
    pub files: Vec<Entry>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its path in the data directory.
    pub name: String,
    pub bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
}

impl Manifest {
    /// Bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }
}

/// A file's head in the archive.
fn header(name: &str, bytes: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_gnu();
    header.set_path(name)?;
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_mtime(0);
    header.set_cksum();
    Ok(header)
}

/// How an archive ends of which all before this has that digest.
fn end(digest: &str) -> io::Result<Vec<u8>> {
    let mut end = tar::Builder::new(Vec::new());
    end.append(&header(DIGEST, digest.len() as u64)?, digest.as_bytes())?;
    end.into_inner()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use futures::StreamExt;

    use super::*;
    use crate::store::Store;
    use crate::units::Size;

    /// A data directory with some blobs in it, and a backup of it.
    async fn backup(folder: &Path) -> (PathBuf, Vec<String>) {
        let store = Store::open(&folder.join("data"), &[]).await.unwrap();
        let mut digests = vec![];
        for bytes in ["", "one", "two and more"] {
            let body = futures::stream::iter([Ok::<_, String>(bytes.into())]).boxed();
            let received = store.blobs.receive(Size::mib(1), body).await.unwrap();
            digests.push(received.digest.clone());
            store.blobs.keep(received).unwrap();
        }
        let snapshot = store.snapshot().await.unwrap();
        // What goes after the snapshot is in it all the same.
        store.blobs.remove(&digests[1]);
        let backup = Backup::new(snapshot).unwrap();
        let (file, bytes) = (folder.join("backup.tar"), backup.bytes());
        backup.write(std::fs::File::create(&file).unwrap()).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().len(), bytes, "as it was told before");
        assert_eq!(std::fs::read_dir(folder.join("data/tmp")).unwrap().count(), 0, "no snapshot is left");
        store.close().await;
        (file, digests)
    }

    fn files(folder: &Path) -> Vec<String> {
        let all = std::fs::read_dir(folder).unwrap();
        let mut all: Vec<String> = all.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_there_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let (file, mut digests) = backup(folder.path()).await;
        let manifest = verify(&file).unwrap();
        assert_eq!(manifest.files.len(), 4);
        let new = folder.path().join("a/new");
        assert_eq!(restore(&file, &new).await.unwrap(), manifest);
        digests.sort();
        assert_eq!(files(&new.join("blobs")), digests);
        assert_eq!(files(&new), ["blobs", "lock", "tmp", "weir.db"]);
        let store = Store::open(&new, &[]).await.unwrap();
        store.can_write().await.unwrap();
        let refusal = restore(&file, &new).await.unwrap_err().to_string();
        assert!(refusal.contains("another server has the data directory"), "{refusal}");
        store.close().await;
        let refusal = restore(&file, &new).await.unwrap_err().to_string();
        assert!(refusal.contains("is not empty"), "{refusal}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_wrong_byte_anywhere_is_found_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (file, _) = backup(folder.path()).await;
        let whole = std::fs::read(&file).unwrap();
        let damaged = folder.path().join("damaged.tar");
        let refused = |bytes: &[u8], what: &str| {
            std::fs::write(&damaged, bytes).unwrap();
            assert!(verify(&damaged).is_err(), "{what}");
        };
        // All heads, the manifest and the end; of the database's many bytes some.
        let database = 4096..whole.len() - 8192;
        for at in (0..whole.len()).filter(|at| !database.contains(at) || at % 61 == 0) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            refused(&bytes, &format!("byte {at}"));
        }
        for length in (0..whole.len()).step_by(509) {
            refused(&whole[..length], &format!("the first {length} bytes"));
        }
        refused(&[&whole[..], &[0; 512]].concat(), "more than there was");
        let new = folder.path().join("new");
        assert!(restore(&damaged, &new).await.is_err());
        assert_eq!(
            (files(&new), files(&new.join("tmp")).len()),
            (vec!["lock".to_owned(), "tmp".to_owned()], 0)
        );
        restore(&file, &new).await.unwrap();
    }

    /// An archive with this manifest and these files, whole by its own digest.
    fn archive(at: &Path, manifest: &str, files: &[(&str, &str)]) {
        use sha2::Digest;
        let mut archive = tar::Builder::new(Vec::new());
        for (name, bytes) in [(MANIFEST, manifest)].iter().chain(files) {
            let mut header = header("x", bytes.len() as u64).unwrap();
            // As the crate would not write it.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            archive.append(&header, bytes.as_bytes()).unwrap();
        }
        let mut bytes = archive.into_inner().unwrap();
        bytes.truncate(bytes.len() - 1024);
        bytes.extend(end(&hex::encode(sha2::Sha256::digest(&bytes))).unwrap());
        std::fs::write(at, bytes).unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_whole_archive_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("made.tar");
        let of = |name: &str, bytes: &str, sha256: &str| {
            let length = bytes.len();
            format!(
                r#"{{"format":1,"weir":"0","created":"","files":[{{"name":"{name}","bytes":{length},"sha256":"{sha256}"}}]}}"#
            )
        };
        let digest = |bytes: &str| hex::encode(<sha2::Sha256 as sha2::Digest>::digest(bytes));
        let refusal = |file: &Path| format!("{:#}", verify(file).unwrap_err());

        archive(&file, r#"{"format":2,"all":"different"}"#, &[]);
        let newer = refusal(&file);
        assert!(
            newer.contains("format 2") && newer.contains("up to 1") && newer.contains("newer weir"),
            "{newer}"
        );

        for name in ["../evil", "/etc/evil", "blobs/../../evil", "operator.key", "key", "blobs/short"] {
            archive(&file, &of(name, "x", &digest("x")), &[(name, "x")]);
            assert!(refusal(&file).contains("no file of a data directory"), "{name}: {}", refusal(&file));
        }
        let blob = format!("blobs/{}", digest("x"));
        archive(&file, &of(&blob, "y", &digest("y")), &[(&blob, "y")]);
        assert!(refusal(&file).contains("no file of a data directory"), "not its digest's name");
        archive(&file, &of("weir.db", "x", &digest("x")), &[("weir.db", "y")]);
        assert!(refusal(&file).contains("is not what it was"), "{}", refusal(&file));
        archive(&file, &of("weir.db", "x", &digest("x")), &[]);
        assert!(refusal(&file).contains("is missing"), "{}", refusal(&file));
        archive(&file, &of("weir.db", "x", &digest("x")), &[("weir.db", "x"), ("more", "x")]);
        assert!(refusal(&file).contains("more than its manifest"), "{}", refusal(&file));
        archive(&file, &of(&blob, "x", &digest("x")), &[(&blob, "x")]);
        assert!(refusal(&file).contains("has no database"), "{}", refusal(&file));
        std::fs::write(&file, vec![7; 10_000]).unwrap();
        assert!(refusal(&file).contains("is no backup"), "{}", refusal(&file));

        // No database, though its digest is right: too short to have a head, and of another kind.
        let new = folder.path().join("new");
        for text in ["x", &"long enough for a head".repeat(100)] {
            archive(&file, &of("weir.db", text, &digest(text)), &[("weir.db", text)]);
            verify(&file).unwrap();
            let refusal = format!("{:#}", restore(&file, &new).await.unwrap_err());
            assert!(refusal.contains("has no database"), "{refusal}");
        }
        assert_eq!(files(&new), ["lock", "tmp"]);
    }
}
