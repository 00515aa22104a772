//! Reads a backup, and trusts nothing of it: names are those of a data directory, in the manifest's order, and every byte
//! is covered by a digest.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::write::Hashed;
use super::{FORMAT, MANIFEST, MANIFEST_BYTES, Manifest, end};
use crate::store::Snapshot;

/// What every format has in its manifest.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// Looks at every byte of a backup, and says what is in it.
///
/// # Errors
/// A file that is no backup, that a newer version has written, or that is not what was written.
pub fn verify(file: &Path) -> anyhow::Result<Manifest> {
    read(file, |_, bytes| io::copy(bytes, &mut io::sink()).map(drop))
}

/// Gives each file of a backup to `take`, by its name and bytes. What was given may be used only when this returns.
///
/// # Errors
/// As for [`verify`], and what `take` fails with.
pub(super) fn read(
    path: &Path,
    mut take: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> anyhow::Result<Manifest> {
    let shown = path.display();
    let mut file = File::open(path).with_context(|| format!("{shown} cannot be read"))?;
    let length = file.metadata().with_context(|| format!("{shown} cannot be read"))?.len();
    let end_bytes = end(&hex::encode([0; 32]))?.len() as u64;
    let Some(body) = length.checked_sub(end_bytes) else { bail!("{shown} is no backup, or not all of one") };
    let mut archive = tar::Archive::new(Hashed::new((&mut file).take(body)));
    let mut entries = archive.entries()?;
    let mut next = |what: &str| -> anyhow::Result<Option<_>> {
        let entry = entries.next().transpose().with_context(|| format!("{what}: {shown} is damaged"))?;
        let Some(entry) = entry else { return Ok(None) };
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        Ok(Some((name, entry)))
    };

    let manifest = match next(MANIFEST) {
        Ok(Some((name, entry))) if name == MANIFEST => {
            let mut json = Vec::new();
            let read = entry.take(MANIFEST_BYTES).read_to_end(&mut json);
            read.with_context(|| format!("{shown} is damaged"))?;
            understand(path, &json)?
        }
        _ => bail!("{shown} is no backup, or not all of one"),
    };
    for expected in &manifest.files {
        let Some((name, entry)) = next(&expected.name)? else {
            bail!("{shown}: {} is missing", expected.name)
        };
        ensure!(name == expected.name, "{shown}: {} is missing", expected.name);
        ensure!(entry.size() == expected.bytes, "{shown}: {name} is not what it was");
        let mut whole = Hashed::new(entry);
        take(&name, &mut whole).with_context(|| format!("{name} of {shown}"))?;
        ensure!(whole.digest() == expected.sha256, "{shown}: {name} is not what it was");
    }
    ensure!(next("its end")?.is_none(), "{shown} has more than its manifest says");

    let mut body = archive.into_inner();
    io::copy(&mut body, &mut io::sink())?;
    let digest = body.digest();
    let mut found = Vec::new();
    file.read_to_end(&mut found)?;
    ensure!(found == end(&digest)?, "{shown} is damaged: it is not what was written");
    Ok(manifest)
}

fn understand(path: &Path, json: &[u8]) -> anyhow::Result<Manifest> {
    let shown = path.display();
    let damaged = || format!("the manifest of {shown} is damaged");
    let Head { format } = serde_json::from_slice(json).with_context(damaged)?;
    ensure!(
        format <= FORMAT,
        "{shown} has format {format}, and this weir knows formats up to {FORMAT}: a newer weir has written it; use that \
         one, or a newer one still"
    );
    let manifest: Manifest = serde_json::from_slice(json).with_context(damaged)?;
    for file in &manifest.files {
        let is_blob = Snapshot::blob(&file.sha256) == file.name && is_digest(&file.sha256);
        ensure!(
            is_blob || file.name == Snapshot::DATABASE,
            "{shown} names {:?}, which is no file of a data directory",
            file.name
        );
    }
    let databases = manifest.files.iter().filter(|file| file.name == Snapshot::DATABASE).count();
    ensure!(databases == 1, "{shown} has no database, or more than one");
    Ok(manifest)
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
