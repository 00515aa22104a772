//! Records that are looked for in the log, by what they say.

use std::path::Path;

use serde_json::value::RawValue;

use super::filter::{Filter, is};
use super::ledger::frame::Bad;
use super::ledger::read::Reader;
use super::ledger::{Position, segment};
use super::record::{Kind, Record};

/// The most bytes of the log that are read for one answer.
const MOST: u64 = 64 << 20;

/// Which records are looked for. What is absent is not asked for.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Milliseconds since 1970: the first, and the first that is not looked at any more.
    pub from: u64,
    pub to: u64,
    pub filter: Filter,
    pub kind: Option<Kind>,
    pub id: Option<String>,
    pub trace: Option<String>,
}

/// A record that was found, with its place in its tenant's chain.
#[derive(Debug)]
pub struct Found {
    pub seq: u64,
    pub hash: String,
    /// As it was written.
    pub text: Box<RawValue>,
    pub record: Record,
}

/// A part of what there is.
#[derive(Debug, Default)]
pub struct Part {
    pub found: Vec<Found>,
    /// Where the next part begins, if there may be one.
    pub next: Option<Position>,
}

impl Wish {
    /// Whether a record of this time is one of those that are looked for.
    fn is_met(&self, record: &Record) -> bool {
        is(self.id.as_deref(), &record.id)
            && is(self.trace.as_deref(), record.trace.as_deref().unwrap_or_default())
            && self.kind.is_none_or(|kind| kind == record.kind)
            && self.filter.is_met(record)
    }
}

/// Looks from a place of the log on, up to its end, for so many records at most. Blocks.
///
/// # Errors
/// When the log cannot be read, or is not as it was written.
pub fn find(folder: &Path, wish: &Wish, after: Position, end: Position, most: usize) -> Result<Part, Bad> {
    let (mut part, mut read) = (Part::default(), 0);
    let unread = |error| Bad::Read { path: folder.to_owned(), error };
    let numbers = segment::numbers(folder).map_err(unread)?;
    let numbers: Vec<u64> =
        numbers.into_iter().filter(|number| (after.segment..=end.segment).contains(number)).collect();
    let mut ahead = None;
    for (at, number) in numbers.iter().enumerate() {
        let reader = match ahead.take() {
            Some(reader) => Some(reader),
            None => opened(folder, *number, end)?,
        };
        if let Some(next) = numbers.get(at + 1) {
            ahead = opened(folder, *next, end)?;
        }
        // One whose successor begins before what is looked for has nothing of it.
        let is_before = ahead.as_ref().is_some_and(|next| next.opening.time < wish.from);
        let Some(mut reader) = reader.filter(|_| !is_before) else { continue };
        if *number == after.segment {
            reader.skip_to(after.offset)?;
        }
        let begun = reader.at().offset;
        loop {
            let place = reader.at();
            if part.found.len() >= most || read + (place.offset - begun) >= MOST {
                part.next = Some(place);
                return Ok(part);
            }
            let Some(line) = reader.next()? else { break };
            let brief = line.brief().map_err(|error| damaged(folder, place, &error))?;
            if brief.time >= wish.to {
                return Ok(part);
            }
            let is_theirs = is(wish.filter.tenant.as_deref(), &brief.tenant);
            if brief.time < wish.from || !is_theirs {
                continue;
            }
            let record = line.record().map_err(|error| damaged(folder, place, &error))?;
            if wish.is_met(&record) {
                let (seq, hash, text) = (line.seq, line.hash.to_string(), line.record.to_owned());
                part.found.push(Found { seq, hash, text, record });
            }
        }
        read += reader.at().offset - begun;
    }
    Ok(part)
}

/// A segment that may have been removed meanwhile.
fn opened(folder: &Path, number: u64, end: Position) -> Result<Option<Reader>, Bad> {
    match Reader::open_until(folder, number, end) {
        Err(Bad::Read { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

fn damaged(folder: &Path, at: Position, error: &serde_json::Error) -> Bad {
    Bad::Damaged { path: segment::path(folder, at.segment), at: at.offset, why: error.to_string() }
}
