//! Sees that the usage of a data directory adds up: that the log is as it was written, and the sums in the store are those of its
//! records.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, ensure};

pub use super::ledger::chain::Head;
pub use super::ledger::verify::{Export, Noted, Verified, export};
use super::totals::{HOUR, Key, Sums, Totals};
use super::{FOLDER, ledger};
use crate::store::usage_of;

/// A log that is as it was written, and whose sums are those in the store.
#[derive(Debug)]
pub struct Sound {
    pub log: Verified,
    /// Hours of which the sums were looked at: those that have all of their records in the log.
    pub hours: u64,
}

/// Looks at a data directory, also while a server has it.
///
/// # Errors
/// What is not as it was written, with its file and place; an hour whose sums are others than those of its records.
pub async fn data(root: &Path, noted: Option<Noted>) -> anyhow::Result<Sound> {
    // First: what the log gets meanwhile is behind that place.
    let (summed, kept) = usage_of(root).await?;
    let folder = root.join(FOLDER);
    let read = move || {
        let mut totals = Totals::default();
        let log = ledger::verify::log(&folder, noted, |end, record| {
            if end <= summed {
                totals.add(record);
            }
        });
        log.map(|log| (log, totals))
    };
    let (log, totals) =
        tokio::task::spawn_blocking(read).await.context("the log was not read to its end")??;
    ensure!(
        log.end >= summed,
        "the usage log ends in segment {} at byte {}, and the sums go up to segment {}, byte {}: its end is missing",
        log.end.segment,
        log.end.offset,
        summed.segment,
        summed.offset
    );
    // Of the hour up to whose middle records were removed not all are there.
    let first = if log.since == 0 { 0 } else { log.since / HOUR + 1 };
    // Sums that are too old are removed, too.
    let oldest = kept.iter().map(|(key, _)| key.hour).min().unwrap_or_default();
    Ok(Sound { hours: compare(&totals, &kept, first.max(oldest))?, log })
}

/// That two sums are the same from an hour on; of how many hours.
fn compare(log: &Totals, store: &Totals, first: u64) -> anyhow::Result<u64> {
    let whole = |totals: &Totals| -> std::collections::BTreeMap<Key, Sums> {
        totals.iter().filter(|(key, _)| key.hour >= first).map(|(key, sums)| (key.clone(), *sums)).collect()
    };
    let (log, store) = (whole(log), whole(store));
    let keys: BTreeSet<_> = log.keys().chain(store.keys()).collect();
    let hours: BTreeSet<_> = keys.iter().map(|key| key.hour).collect();
    for key in keys {
        let (log, store) = (log.get(key), store.get(key));
        ensure!(
            log == store,
            "the sums in the database are not those of the log, of {key:?}: {store:?}, not {log:?}"
        );
    }
    Ok(hours.len() as u64)
}
