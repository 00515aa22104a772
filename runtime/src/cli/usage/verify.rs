//! `weir usage verify`

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use weir::usage::{self, Head, Noted};

use crate::cli::client::Failure;
use crate::cli::output;

#[derive(Args)]
pub struct Verify {
    /// A tenant's export (JSON lines); without one a data directory is looked at
    #[arg(conflicts_with = "data_dir")]
    file: Option<PathBuf>,
    /// The data directory; a server may have it
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "weir-data")]
    data_dir: PathBuf,
    /// A tenant's newest record that was noted before, as this command prints it; of an export without the tenant
    #[arg(long, value_name = "[TENANT:]NUMBER:HASH", value_parser = noted)]
    head: Option<Noted>,
}

fn noted(text: &str) -> Result<Noted, String> {
    let form = "write NUMBER:HASH, or TENANT:NUMBER:HASH";
    let (rest, hash) = text.rsplit_once(':').ok_or(form)?;
    let (tenant, seq) = match rest.rsplit_once(':') {
        Some((tenant, seq)) => (Some(tenant.to_owned()), seq),
        None => (None, rest),
    };
    let seq = seq.parse().map_err(|_| format!("`{seq}` is no number: {form}"))?;
    Ok(Noted { tenant, head: Head { seq, hash: hash.to_lowercase().parse()? } })
}

impl Verify {
    pub async fn run(self, as_json: bool) -> Result<(), Failure> {
        match &self.file {
            Some(file) => export(file, self.head, as_json),
            None if self.head.as_ref().is_some_and(|noted| noted.tenant.is_none()) => {
                Err(Failure::Usage("say whose record was noted: --head TENANT:NUMBER:HASH".to_owned()))
            }
            None => data(&self.data_dir, self.head, as_json).await,
        }
    }
}

async fn data(folder: &Path, noted: Option<Noted>, as_json: bool) -> Result<(), Failure> {
    let sound = usage::data(folder, noted).await.map_err(|error| Failure::Local(format!("{error:#}")))?;
    let log = sound.log;
    if as_json {
        let (records, segments, hours) = (log.records, log.segments, sound.hours);
        output::json(
            &json!({ "records": records, "segments": segments, "hours": hours, "torn": log.torn, "heads": log.heads }),
        );
        return Ok(());
    }
    eprintln!(
        "{} records in {} segments, each as it was written; the sums of {} hours are those of their records",
        log.records, log.segments, sound.hours
    );
    if let Some(torn) = log.torn {
        eprintln!("{torn}: it is being written, or a crash has left it");
    }
    if !log.heads.is_empty() {
        eprintln!("the newest record of each tenant is");
    }
    for (tenant, head) in &log.heads {
        output::line(format!("{tenant}:{head}"));
    }
    Ok(())
}

fn export(path: &Path, noted: Option<Noted>, as_json: bool) -> Result<(), Failure> {
    let named = |why: String| Failure::Local(format!("{}: {why}", path.display()));
    let file = File::open(path).map_err(|error| named(error.to_string()))?;
    let export = usage::export(BufReader::new(file), noted).map_err(named)?;
    if as_json {
        let usage::Export { tenant, records, first, head, is_anchored } = export;
        output::json(&json!({
            "tenant": tenant, "records": records, "first": first, "head": head, "first_is_linked": is_anchored,
        }));
        return Ok(());
    }
    eprintln!(
        "{} records of tenant {}, from number {} on, each as it was written",
        export.records, export.tenant, export.first
    );
    if !export.is_anchored {
        eprintln!(
            "what was before the first is not in the file, so the first alone is not held against its hash"
        );
    }
    eprintln!("the newest is");
    output::line(export.head.to_string());
    Ok(())
}
