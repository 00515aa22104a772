//! Makes a data directory of a backup: all of it, or none.
//!
//! Everything is written beside its place, read from the backup to its end, and synced. Then the blobs get their place, and
//! last the database: blobs without one are nothing, and a server that starts there removes them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::{Manifest, read};
use crate::store::{self, Snapshot};

/// What may be in a data directory that is empty: what an attempt to use it leaves, and what a file system has of its own.
const NOTHING: &[&str] = &["lock", "tmp", "lost+found"];

/// What a database begins with. Source: <https://www.sqlite.org/fileformat.html>, 1.3.1.
const HEAD: &[u8] = b"SQLite format 3\0";

/// Makes a data directory of a backup, where there is none or an empty folder.
///
/// # Errors
/// A directory that is not empty or that a server has, a backup that is not whole, or a disk that does not take it. The data
/// directory is empty then.
pub async fn restore(backup: &Path, root: &Path) -> anyhow::Result<Manifest> {
    let shown = root.display();
    store::make_folder(root).with_context(|| format!("the data directory {shown} cannot be made"))?;
    let _lock = store::lock(root)?;
    let found = fs::read_dir(root)?.collect::<io::Result<Vec<_>>>()?;
    let is_nothing = |name: &str| NOTHING.contains(&name);
    let other = found.iter().find(|entry| !entry.file_name().to_str().is_some_and(is_nothing));
    ensure!(
        other.is_none(),
        "the data directory {shown} is not empty: a backup is restored into a new one, so that nothing is lost"
    );
    let tmp = root.join("tmp");
    store::make_folder(&tmp)?;
    let folder = tempfile::Builder::new().prefix("restore-").tempdir_in(&tmp)?;
    let (from, into) = (backup.to_owned(), folder.path().to_owned());
    let manifest = tokio::task::spawn_blocking(move || unpack(&from, &into)).await??;
    // A database that this version does not know is refused; one of an older version becomes one of this.
    store::check(folder.path()).await?;
    for name in ["blobs", Snapshot::DATABASE] {
        fs::rename(folder.path().join(name), root.join(name))
            .with_context(|| format!("{name} cannot be put into {shown}"))?;
        store::sync_folder(root)?;
    }
    Ok(manifest)
}

fn unpack(backup: &Path, into: &Path) -> anyhow::Result<Manifest> {
    let blobs: PathBuf = into.join("blobs");
    store::make_folder(&blobs)?;
    let mut file = |name: &str, bytes: &mut dyn Read| {
        let mut private = OpenOptions::new();
        let mut file: File = private.write(true).create_new(true).mode(0o600).open(into.join(name))?;
        io::copy(bytes, &mut file)?;
        file.sync_all()
    };
    let manifest = read::read(backup, &mut file)?;
    // SQLite takes a file that is too short for a head as an empty database.
    let mut head = Vec::new();
    File::open(into.join(Snapshot::DATABASE))?.take(HEAD.len() as u64).read_to_end(&mut head)?;
    ensure!(head == HEAD, "{} has no database", backup.display());
    store::sync_folder(&blobs)?;
    store::sync_folder(into)?;
    Ok(manifest)
}
