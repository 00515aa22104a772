//! Precompiled code on disk. A component is compiled once, at deploy; its artifact is kept by the component's
//! digest and the engine's version and settings, so that another engine never reads it, and mapped from disk when
//! the function wakes.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::PathBuf;

use wasmtime::Engine;
use wasmtime::component::Component;

use crate::store;

/// The artifacts of one engine.
#[derive(Debug, Clone)]
pub struct Artifacts {
    root: PathBuf,
    folder: PathBuf,
}

impl Artifacts {
    /// Artifacts of `engine` in a folder of their own below `root`.
    pub fn open(root: PathBuf, engine: &Engine) -> std::io::Result<Self> {
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let folder = root.join(format!("{:016x}", hasher.finish()));
        fs::create_dir_all(&folder)?;
        Ok(Self { root, folder })
    }

    /// Removes other engines' artifacts, and those of this one that are not `used`.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sweep(&self, used: impl Fn(&str) -> bool) -> std::io::Result<()> {
        let mine = self.folder.file_name().and_then(|name| name.to_str());
        store::sweep(&self.root, |name| Some(name) == mine)?;
        store::sweep(&self.folder, |name| name.strip_suffix(".cwasm").is_some_and(&used))
    }

    /// Whether there is an artifact.
    pub fn has(&self, digest: &str) -> bool {
        self.path(digest).exists()
    }

    pub fn path(&self, digest: &str) -> PathBuf {
        self.folder.join(format!("{digest}.cwasm"))
    }

    /// Keeps what [`Engine::precompile_component`] made. The file appears whole or not at all.
    pub fn keep(&self, digest: &str, code: &[u8]) -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(code)?;
        file.as_file().sync_all()?;
        file.persist(self.path(digest)).map_err(|error| error.error)?;
        Ok(())
    }

    /// Maps an artifact into memory; nothing is copied, and pages are read as they are used. `None` when there is
    /// none, or one that this engine cannot use.
    pub fn map(&self, engine: &Engine, digest: &str) -> Option<Component> {
        if !self.has(digest) {
            return None;
        }
        // SAFETY: mapping is sound for bytes that `Engine::precompile_component` made and nobody changed. The
        // folder is in the data directory, which only the operator and this server write; files in it are made by
        // `keep` alone, appear whole by rename, and are never written again. The engine checks its own version and
        // settings in the file's header before it uses the rest.
        #[allow(unsafe_code)]
        let mapped = unsafe { Component::deserialize_file(engine, self.path(digest)) };
        mapped
            .inspect_err(
                |error| tracing::warn!(digest, %error, "an artifact cannot be used; compiling again"),
            )
            .ok()
    }

    /// Removes an artifact; none is fine.
    pub fn remove(&self, digest: &str) {
        if let Err(error) = fs::remove_file(self.path(digest))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(digest, %error, "an artifact cannot be removed");
        }
    }
}
