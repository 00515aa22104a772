//! Makes a data directory of a backup: all of it, or none.
//!
//! Everything is written beside its place, read from the backup to its end, and synced. Then the blobs get their place, and
//! last the database. Where one cannot have it, what has goes back. A crash between the two leaves blobs without a database:
//! a server that starts there removes them, and a second restore says that there is something.

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
    put(folder.path(), root)?;
    Ok(manifest)
}

/// Gives blobs and database their place in an empty data directory: both, or neither.
fn put(from: &Path, root: &Path) -> anyhow::Result<()> {
    let names = ["blobs", Snapshot::DATABASE];
    let put = names.iter().try_for_each(|name| {
        fs::rename(from.join(name), root.join(name))
            .and_then(|()| store::sync_folder(root))
            .with_context(|| format!("{name} cannot be put into {}", root.display()))
    });
    let Err(mut error) = put else { return Ok(()) };
    for name in names.iter().rev() {
        if let Err(stays) = fs::rename(root.join(name), from.join(name))
            && stays.kind() != io::ErrorKind::NotFound
        {
            error = error.context(format!("{name} stays in {}: remove it ({stays})", root.display()));
        }
    }
    Err(error)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_database_cannot_be_put_there_are_no_blobs_either() {
        let (from, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let count = |folder: &Path| fs::read_dir(folder).unwrap().count();
        fs::create_dir(from.path().join("blobs")).unwrap();
        let refused = put(from.path(), root.path()).unwrap_err().to_string();
        assert!(refused.contains("weir.db cannot be put into"), "{refused}");
        assert_eq!((count(from.path()), count(root.path())), (1, 0));
        fs::write(from.path().join(Snapshot::DATABASE), "").unwrap();
        put(from.path(), root.path()).unwrap();
        assert_eq!((count(from.path()), count(root.path())), (0, 2));
    }
}
