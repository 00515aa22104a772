//! Precompiled code on disk. A component is compiled once, at deploy, in a process of its own; its artifact is kept by
//! the component's digest and the engine's version and settings, so that another engine never reads it, and mapped
//! from disk when the function wakes.
//!
//! An artifact is machine code: mapping one that somebody else wrote would be running it. So each has a keyed MAC
//! beside it, over its bytes, its component's digest and the engine, with a key that only this data directory has; it
//! is checked before every mapping. What fails the check, or was cut short, is as good as missing.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use tempfile::NamedTempFile;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::store;

/// The artifacts of one engine.
#[derive(Debug, Clone)]
pub struct Artifacts {
    root: PathBuf,
    folder: PathBuf,
    engine: u64,
    key: [u8; blake3::KEY_LEN],
    /// Held while an artifact and its MAC are put in place, and by those who read both.
    place: Arc<RwLock<()>>,
}

/// An artifact that is being written. Dropping it forgets it.
pub struct Draft {
    file: NamedTempFile,
    mac: blake3::Hasher,
    digest: String,
}

/// What an engine compiles for: artifacts of one are of no use to an engine of another.
pub fn compatibility(engine: &Engine) -> u64 {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.finish()
}

impl Artifacts {
    /// Artifacts of `engine` in a folder of their own below `root`.
    pub fn open(root: PathBuf, engine: &Engine, key: [u8; blake3::KEY_LEN]) -> io::Result<Self> {
        let engine = compatibility(engine);
        let folder = root.join(format!("{engine:016x}"));
        store::make_folder(&folder)?;
        Ok(Self { root, folder, engine, key, place: Arc::default() })
    }

    /// Removes other engines' artifacts, and those of this one that are not `used`.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sweep(&self, used: impl Fn(&str) -> bool) -> io::Result<()> {
        let mine = self.folder.file_name().and_then(|name| name.to_str());
        store::sweep(&self.root, |name| Some(name) == mine)?;
        let digest =
            |name: &str| name.strip_suffix(".cwasm").or(name.strip_suffix(".mac")).is_some_and(&used);
        store::sweep(&self.folder, digest)
    }

    /// Whether there seems to be an artifact; whether it is whole is seen when it is mapped.
    pub fn has(&self, digest: &str) -> bool {
        self.code(digest).exists()
    }

    pub(crate) fn code(&self, digest: &str) -> PathBuf {
        self.folder.join(format!("{digest}.cwasm"))
    }

    pub(crate) fn mac(&self, digest: &str) -> PathBuf {
        self.folder.join(format!("{digest}.mac"))
    }

    fn hasher(&self, digest: &str) -> blake3::Hasher {
        let mut mac = blake3::Hasher::new_keyed(&self.key);
        mac.update(b"weir artifact\0")
            .update(&self.engine.to_le_bytes())
            .update(digest.as_bytes())
            .update(b"\0");
        mac
    }

    /// Begins an artifact of the component with this digest.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn draft(&self, digest: &str) -> io::Result<Draft> {
        let file = NamedTempFile::new_in(&self.folder)?;
        Ok(Draft { file, mac: self.hasher(digest), digest: digest.to_owned() })
    }

    /// Keeps a draft. The artifact appears whole or not at all: without the MAC that belongs to it, it is none.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep(&self, draft: Draft) -> io::Result<()> {
        let mut mac = NamedTempFile::new_in(&self.folder)?;
        mac.write_all(draft.mac.finalize().as_bytes())?;
        mac.as_file().sync_all()?;
        draft.file.as_file().sync_all()?;
        let _place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        mac.persist(self.mac(&draft.digest)).map_err(|error| error.error)?;
        draft.file.persist(self.code(&draft.digest)).map_err(|error| error.error)?;
        Ok(())
    }

    /// An artifact that is there and is what this server made: its file.
    fn genuine(&self, digest: &str) -> io::Result<Option<File>> {
        let (mac, code) = {
            let _place = self.place.read().unwrap_or_else(PoisonError::into_inner);
            (fs::read(self.mac(digest)), File::open(self.code(digest)))
        };
        let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let (mac, mut code) = match (mac, code) {
            (Ok(mac), Ok(code)) => (mac, code),
            (Err(error), _) | (_, Err(error)) if missing(&error) => return Ok(None),
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        let Ok(mac) = <[u8; blake3::OUT_LEN]>::try_from(mac) else { return Ok(None) };
        let mut hasher = self.hasher(digest);
        hasher.update_reader(&mut code)?;
        // Compared in constant time.
        Ok((hasher.finalize() == mac).then_some(code))
    }

    /// Maps an artifact into memory; nothing is copied, and pages are read as they are used. `None` when there is none
    /// that this server made.
    ///
    /// # Errors
    /// What this engine has against the component, such as more parts than one may have.
    pub fn map(&self, engine: &Engine, digest: &str) -> wasmtime::Result<Option<Component>> {
        let checked = match self.genuine(digest) {
            Ok(Some(file)) => file.metadata(),
            Ok(None) => {
                if self.has(digest) {
                    tracing::warn!(digest, "an artifact is not what was written here; compiling again");
                }
                return Ok(None);
            }
            Err(error) => Err(error),
        };
        // What is mapped is the file that was checked, and no other that has taken its place since.
        let _place = self.place.read().unwrap_or_else(PoisonError::into_inner);
        let same = checked.and_then(|checked| Ok(checked.ino() == fs::metadata(self.code(digest))?.ino()));
        match same {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                tracing::warn!(digest, %error, "an artifact cannot be read; compiling again");
                return Ok(None);
            }
        }
        // SAFETY: mapping is sound for bytes that `Engine::precompile_component` made and nobody changed. The MAC that
        // was just checked says that they are what `keep` was given for this digest and this engine, and its key is
        // this data directory's alone. Files in it appear whole by rename and are never written again by this server,
        // and only the operator can write them otherwise. The engine checks its own version and settings in the file's
        // header before it uses the rest.
        #[allow(unsafe_code)]
        let mapped = unsafe { Component::deserialize_file(engine, self.code(digest)) };
        mapped.map(Some)
    }

    /// Removes an artifact; none is fine.
    pub fn remove(&self, digest: &str) {
        let _place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        for path in [self.code(digest), self.mac(digest)] {
            if let Err(error) = fs::remove_file(path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(digest, %error, "an artifact cannot be removed");
            }
        }
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.mac.update(bytes.get(..written).unwrap_or(bytes));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn kept(root: &std::path::Path, engine: &Engine) -> Artifacts {
        let artifacts = Artifacts::open(root.to_owned(), engine, KEY).unwrap();
        let mut draft = artifacts.draft("d").unwrap();
        draft.write_all(&engine.precompile_component(b"\0asm\x0d\0\x01\0").unwrap()).unwrap();
        artifacts.keep(draft).unwrap();
        artifacts
    }

    #[test]
    fn only_what_was_made_here_is_mapped() {
        let (folder, engine) = (tempfile::tempdir().unwrap(), Engine::default());
        let artifacts = kept(folder.path(), &engine);
        let mapped = |artifacts: &Artifacts, digest| artifacts.map(&engine, digest).unwrap().is_some();
        assert!(mapped(&artifacts, "d") && !mapped(&artifacts, "e"));

        // Another key, and another component's name for the same bytes.
        let other = Artifacts { key: [8; 32], ..artifacts.clone() };
        assert!(!mapped(&other, "d"));
        fs::copy(artifacts.code("d"), artifacts.code("e")).unwrap();
        fs::copy(artifacts.mac("d"), artifacts.mac("e")).unwrap();
        assert!(!mapped(&artifacts, "e"));
        // Another engine.
        assert!(!mapped(&Artifacts { engine: 1, ..artifacts.clone() }, "d"));

        // One bit in any place, one byte less, one byte more, no MAC, half a MAC.
        let (code, mac) = (fs::read(artifacts.code("d")).unwrap(), fs::read(artifacts.mac("d")).unwrap());
        for at in (0..code.len()).step_by(code.len() / 64) {
            let mut changed = code.clone();
            changed[at] ^= 1;
            fs::write(artifacts.code("d"), changed).unwrap();
            assert!(!mapped(&artifacts, "d"), "byte {at}");
        }
        for changed in [&code[..code.len() - 1], &[code.as_slice(), b"\0"].concat(), b""] {
            fs::write(artifacts.code("d"), changed).unwrap();
            assert!(!mapped(&artifacts, "d"));
        }
        fs::write(artifacts.code("d"), &code).unwrap();
        fs::write(artifacts.mac("d"), &mac[..16]).unwrap();
        assert!(!mapped(&artifacts, "d"));
        fs::remove_file(artifacts.mac("d")).unwrap();
        assert!(!mapped(&artifacts, "d"));
        fs::write(artifacts.mac("d"), &mac).unwrap();
        assert!(mapped(&artifacts, "d"));
    }
}
