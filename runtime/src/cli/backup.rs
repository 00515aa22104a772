//! `weir backup` and `weir restore`

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use futures::TryStreamExt;
use reqwest::Method;
use weir::backup::{self, Manifest};
use weir::units::Size;

use super::Context;
use super::client::{Failure, broken};
use super::output;

#[derive(Args)]
pub struct Backup {
    /// Where to write it; there must be no such file
    file: PathBuf,
}

#[derive(Args)]
pub struct Restore {
    /// The backup
    file: PathBuf,
    /// The data directory to make, new or empty
    #[arg(long, env = "WEIR_DATA_DIR", required_unless_present = "check")]
    data_dir: Option<PathBuf>,
    /// Only look at every byte of the backup
    #[arg(long)]
    check: bool,
}

impl Backup {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let path = &self.file;
        let cannot = |error: std::io::Error| {
            Failure::Local(format!("the backup {} cannot be written: {error}", path.display()))
        };
        let Some(name) = path.file_name() else {
            return Err(Failure::Usage(format!("{} is no name of a file", path.display())));
        };
        if path.exists() {
            return Err(Failure::Usage(format!("{} is there already; name another file", path.display())));
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let response = context.client.send(context.client.request(Method::POST, "/v1/backup")).await?;
        if !response.status().is_success() {
            return Err(context.client.refusal(response).await);
        }
        // Under another name until it is whole, and readable by nobody else.
        let mut partial =
            tempfile::Builder::new().prefix(name).suffix(".partial").tempfile_in(folder).map_err(cannot)?;
        let mut pieces = response.bytes_stream();
        while let Some(piece) = pieces.try_next().await.map_err(|error| broken(&error))? {
            partial.write_all(&piece).map_err(cannot)?;
        }
        let manifest = checked(partial.path())?;
        partial.as_file().sync_all().map_err(cannot)?;
        partial.persist_noclobber(path).map_err(|error| cannot(error.error))?;
        std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(cannot)?;
        if context.json {
            output::json(&serde_json::to_value(&manifest).unwrap_or_default());
        } else {
            output::line(format!("{} is {}", path.display(), about(&manifest)));
        }
        Ok(())
    }
}

impl Restore {
    pub async fn run(self) -> Result<(), Failure> {
        match self.data_dir.filter(|_| !self.check) {
            None => output::line(format!("{} is {}", self.file.display(), about(&checked(&self.file)?))),
            Some(folder) => {
                let restored = backup::restore(&self.file, &folder).await;
                let manifest = restored.map_err(|error| Failure::Local(format!("{error:#}")))?;
                output::line(format!("{} has what was in {}", folder.display(), about(&manifest)));
            }
        }
        Ok(())
    }
}

fn checked(file: &Path) -> Result<Manifest, Failure> {
    backup::verify(file).map_err(|error| Failure::Local(format!("{error:#}")))
}

fn about(manifest: &Manifest) -> String {
    let (files, bytes) = (manifest.files.len(), Size::bytes(manifest.bytes()));
    format!("a backup of {}: {files} files, {bytes}, written by weir {}", manifest.created, manifest.weir)
}
