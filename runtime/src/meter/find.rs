//! Records that are looked for in the log, by what they say.

use std::path::Path;

use serde_json::value::RawValue;

use super::ledger::frame::Bad;
use super::ledger::read::Reader;
use super::ledger::{Position, segment};
use super::record::{Kind, Outcome, Record};

/// The most bytes of the log that are read for one answer.
const MOST: u64 = 64 << 20;

/// Which records are looked for. What is absent is not asked for.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Milliseconds since 1970: the first, and the first that is not looked at any more.
    pub from: u64,
    pub to: u64,
    pub tenant: Option<String>,
    pub function: Option<String>,
    pub key: Option<String>,
    pub kind: Option<Kind>,
    pub outcome: Option<Outcome>,
    pub class: Option<String>,
    pub device: Option<String>,
    pub model: Option<String>,
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
    /// Whether a record is one of those that are looked for. With a device or a model, it is if it used it.
    fn is_met(&self, record: &Record) -> bool {
        let is = |wanted: &Option<String>, text: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| text.unwrap_or_default() == wanted)
        };
        let uses = self.device.is_none() && self.model.is_none()
            || record
                .uses
                .iter()
                .any(|used| is(&self.device, Some(&used.device)) && is(&self.model, Some(&used.model)));
        is(&self.function, record.function.as_deref())
            && is(&self.key, record.key.as_deref())
            && is(&self.class, record.class.as_deref())
            && is(&self.id, Some(&record.id))
            && is(&self.trace, record.trace.as_deref())
            && self.kind.is_none_or(|kind| kind == record.kind)
            && self.outcome.is_none_or(|outcome| outcome == record.outcome)
            && uses
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
    for (at, number) in numbers.iter().enumerate() {
        // One whose successor begins before what is looked for has nothing of it.
        if let Some(next) = numbers.get(at + 1)
            && opened(folder, *next, end)?.is_some_and(|next| next.opening.time < wish.from)
        {
            continue;
        }
        let Some(mut reader) = opened(folder, *number, end)? else { continue };
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
            let is_theirs = wish.tenant.as_deref().is_none_or(|tenant| tenant == brief.tenant);
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
