//! Definitions, one small JSON file each, so that a change costs the same however many there are.

use std::fs;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;

use super::sync_folder;

/// A definition that the index keeps.
pub trait Record: Serialize + DeserializeOwned {
    const FOLDER: &'static str;
    fn tenant(&self) -> &str;
    fn name(&self) -> &str;
}

pub struct Index<T> {
    folder: PathBuf,
    _records: PhantomData<fn() -> T>,
}

impl<T: Record> Index<T> {
    pub(super) fn open(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self { folder, _records: PhantomData })
    }

    /// Names are checked before they come here, so they are safe as file names.
    fn path(&self, tenant: &str, name: &str) -> PathBuf {
        self.folder.join(tenant).join(name)
    }

    /// Writes a definition, in place of the one of that name. On disk when it returns.
    ///
    /// # Errors
    /// When the disk cannot take it; the one before is untouched then.
    pub fn put(&self, record: &T) -> io::Result<()> {
        let path = self.path(record.tenant(), record.name());
        let folder = self.folder.join(record.tenant());
        if !folder.exists() {
            fs::create_dir_all(&folder)?;
            sync_folder(&self.folder)?;
        }
        let mut file = NamedTempFile::with_prefix_in(".", &folder)?;
        serde_json::to_writer(&mut file, record)?;
        file.flush()?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        sync_folder(&folder)
    }

    /// Reads one definition.
    ///
    /// # Errors
    /// When it is not there or cannot be understood.
    pub fn get(&self, tenant: &str, name: &str) -> io::Result<T> {
        Ok(serde_json::from_slice(&fs::read(self.path(tenant, name))?)?)
    }

    /// Removes a definition; none is fine.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn remove(&self, tenant: &str, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(tenant, name)) {
            Ok(()) => sync_folder(&self.folder.join(tenant)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All definitions, and whether these are all: a file that cannot be understood is named in the log and left alone.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub fn all(&self) -> io::Result<(Vec<T>, bool)> {
        let (mut records, mut whole) = (Vec::new(), true);
        for tenant in fs::read_dir(&self.folder)? {
            for file in fs::read_dir(tenant?.path())? {
                let path = file?.path();
                let unfinished =
                    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
                if unfinished {
                    fs::remove_file(path)?;
                    continue;
                }
                match serde_json::from_slice(&fs::read(&path)?) {
                    Ok(record) => records.push(record),
                    Err(error) => {
                        tracing::error!(path = %path.display(), %error, "a definition is not readable");
                        whole = false;
                    }
                }
            }
        }
        Ok((records, whole))
    }
}
