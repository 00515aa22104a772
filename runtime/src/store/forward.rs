//! Data directories from before there was a database: definitions as JSON files, `index/{kind}/{tenant}/{name}`. At the
//! first start all of them go into the database in one transaction, and the folder becomes `index.migrated`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};

use super::database::{Connection, Pool};
use super::{Record, index, sync_folder};

const OLD: &str = "index";
const MIGRATED: &str = "index.migrated";

/// A file where older versions have the folder. One that was started on this data directory would find no definitions,
/// and remove all bytes as unused.
const NOTE: &str = "Definitions are in weir.db. This file keeps older versions of weir from starting here.\n";

/// A kind of definition, as the files have it.
pub struct Kind {
    name: &'static str,
    read: fn(&[u8]) -> serde_json::Result<Old>,
}

/// What was in a file.
struct Old {
    tenant: String,
    name: String,
    json: String,
}

impl Kind {
    pub fn of<T: Record>() -> Self {
        let read = |bytes: &[u8]| {
            let record: T = serde_json::from_slice(bytes)?;
            Ok(Old {
                tenant: record.tenant().to_owned(),
                name: record.name().to_owned(),
                json: serde_json::to_string(&record)?,
            })
        };
        Self { name: T::KIND, read }
    }
}

/// Takes what an older version has left into the database, once.
///
/// # Errors
/// For a file that cannot be understood, with its name; nothing has changed then.
pub async fn migrate(root: &Path, database: &Pool, kinds: &[Kind]) -> anyhow::Result<()> {
    let old = root.join(OLD);
    match fs::metadata(&old) {
        Ok(found) if found.is_dir() => {
            let (done, shown) = (root.join(MIGRATED), old.display());
            ensure!(
                !done.exists(),
                "the data directory has both {shown} and {}; move away the one that is not to be used",
                done.display()
            );
            let mut change = database.begin().await?;
            let taken = take(&old, &mut change, kinds).await?;
            change.commit().await.with_context(|| format!("{shown} cannot be taken into the database"))?;
            fs::rename(&old, &done)
                .with_context(|| format!("{shown} cannot be renamed to {}", done.display()))?;
            tracing::info!(taken, kept = %done.display(), "the definitions are in the database now");
        }
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", old.display())),
    }
    let mut private = OpenOptions::new();
    let note = private.create_new(true).write(true).mode(0o600).open(&old);
    let mut note = note.with_context(|| format!("{} cannot be written", old.display()))?;
    note.write_all(NOTE.as_bytes())?;
    note.sync_all()?;
    sync_folder(root)?;
    Ok(())
}

async fn take(old: &Path, change: &mut Connection, kinds: &[Kind]) -> anyhow::Result<usize> {
    let mut taken = 0;
    for folder in entries(old)? {
        let Some(kind) = kinds.iter().find(|kind| folder.ends_with(kind.name)) else {
            bail!("{} is nothing that this weir knows; move it away, and start again", folder.display());
        };
        for tenant in entries(&folder)? {
            for file in entries(&tenant)? {
                // A write that a crash cut off; it was never acknowledged.
                let unfinished =
                    file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
                if unfinished {
                    continue;
                }
                let bytes = fs::read(&file).with_context(|| format!("{} cannot be read", file.display()))?;
                let read = (kind.read)(&bytes).with_context(|| {
                    format!(
                        "{} cannot be understood, so nothing was taken into the database; mend the file or move \
                         it away, and start again",
                        file.display()
                    )
                })?;
                ensure!(
                    tenant.ends_with(&read.tenant) && file.ends_with(&read.name),
                    "{} says that it is {}/{}; mend the file or move it away, and start again",
                    file.display(),
                    read.tenant,
                    read.name
                );
                index::put(change, kind.name, &read.tenant, &read.name, &read.json).await?;
                taken += 1;
            }
        }
    }
    Ok(taken)
}

fn entries(folder: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let read = || -> io::Result<Vec<_>> { fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect() };
    read().with_context(|| format!("{} cannot be read", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::super::index::tests::{Thing, thing};
    use super::super::{Index, database};
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(OLD).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn json(of: &Thing) -> String {
        serde_json::to_string(of).unwrap()
    }

    async fn forward(root: &Path) -> anyhow::Result<Index<Thing>> {
        let database = database::open(root).await?;
        migrate(root, &database, &[Kind::of::<Thing>()]).await?;
        Ok(Index::new(database))
    }

    #[tokio::test]
    async fn files_are_taken_into_the_database_once() {
        let data = tempfile::tempdir().unwrap();
        let things = [thing("t", "a", "one"), thing("t", "b", "two"), thing("u", "a", "three")];
        for thing in &things {
            write(data.path(), &format!("functions/{}/{}", thing.tenant, thing.name), &json(thing));
        }
        write(data.path(), "functions/t/.half", "{");
        let index = forward(data.path()).await.unwrap();
        assert_eq!(index.all().await.unwrap(), (things.to_vec(), true));
        let kept = fs::read_to_string(data.path().join("index.migrated/functions/t/a")).unwrap();
        assert_eq!(kept, json(&things[0]));
        assert!(data.path().join(OLD).is_file(), "an older version cannot start");

        index.put(&thing("t", "a", "changed")).await;
        let index = forward(data.path()).await.unwrap();
        let kept = index.get("t", "a").await.unwrap().unwrap();
        assert_eq!((kept.record.says.as_str(), kept.version), ("changed", 2), "nothing is taken twice");
    }

    #[tokio::test]
    async fn after_a_crash_before_the_rename_all_is_taken_again() {
        let data = tempfile::tempdir().unwrap();
        write(data.path(), "functions/t/a", &json(&thing("t", "a", "one")));
        drop(forward(data.path()).await.unwrap());
        fs::remove_file(data.path().join(OLD)).unwrap();
        fs::rename(data.path().join(MIGRATED), data.path().join(OLD)).unwrap();
        let index = forward(data.path()).await.unwrap();
        assert_eq!(index.all().await.unwrap(), (vec![thing("t", "a", "one")], true));
        assert!(data.path().join(MIGRATED).is_dir());
    }

    #[tokio::test]
    async fn a_new_data_directory_has_the_note() {
        let data = tempfile::tempdir().unwrap();
        forward(data.path()).await.unwrap();
        assert_eq!(fs::read_to_string(data.path().join(OLD)).unwrap(), NOTE);
        assert!(!data.path().join(MIGRATED).exists());
    }

    #[tokio::test]
    async fn what_is_not_understood_stops_all_of_it() {
        let whole = json(&thing("t", "a", "one"));
        let cases = [
            ("functions/t/b", "{\"tenant\": \"t\"", "index/functions/t/b cannot be understood"),
            ("functions/t/b", whole.as_str(), "index/functions/t/b says that it is t/a"),
            ("others/t/b", whole.as_str(), "index/others is nothing that this weir knows"),
        ];
        for (path, text, said) in cases {
            let data = tempfile::tempdir().unwrap();
            write(data.path(), "functions/t/a", &whole);
            write(data.path(), path, text);
            let refusal = format!("{:#}", forward(data.path()).await.err().unwrap());
            assert!(refusal.contains(said), "{refusal}");
            let index: Index<Thing> = Index::new(database::open(data.path()).await.unwrap());
            assert_eq!(index.all().await.unwrap(), (vec![], true), "none is half done");
            let left = data.path().join(OLD);
            assert!(left.join("functions/t/a").exists() && left.join(path).exists(), "nothing is lost");

            fs::remove_file(left.join(path)).unwrap();
            drop(fs::remove_dir_all(left.join("others")));
            assert_eq!(forward(data.path()).await.unwrap().all().await.unwrap().0.len(), 1, "{path}");
        }
    }

    #[tokio::test]
    async fn two_indexes_are_one_too_many() {
        let data = tempfile::tempdir().unwrap();
        write(data.path(), "functions/t/a", &json(&thing("t", "a", "one")));
        fs::create_dir(data.path().join(MIGRATED)).unwrap();
        let refusal = forward(data.path()).await.err().unwrap().to_string();
        assert!(refusal.contains("index.migrated; move away the one"), "{refusal}");
    }
}
