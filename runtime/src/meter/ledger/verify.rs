//! Sees that a usage log is as it was written: all of it, or one tenant's part of it in a file of its own.
//!
//! What is looked at: the CRC of each frame; that each tenant's records are numbered without a gap, and each hash is over the
//! hash before it and the record's text; that each segment begins where the one before has ended; that no id comes twice, and
//! time does not go back. To alter, leave out, insert or exchange a record, all that follow of its tenant must be made anew, and
//! the newest hash, noted elsewhere, tells.

use std::collections::{BTreeMap, HashSet};
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;

use super::chain::{Head, Heads};
use super::frame::Bad;
use super::read::{Brief, Line, Reader};
use super::{Position, segment};
use crate::meter::record::Record;

/// A log that is as it was written.
#[derive(Debug, Default)]
pub struct Verified {
    pub records: u64,
    pub segments: u64,
    /// What is up to this time may not all be in it: milliseconds since 1970. 0 if it begins with the first record of all.
    pub since: u64,
    /// The newest record of each tenant.
    pub heads: BTreeMap<Arc<str>, Head>,
    /// Where the last whole record ends.
    pub end: Position,
    /// What is behind it, in a sentence: a part of a record that a crash has left, or that is just being written.
    pub torn: Option<String>,
}

/// A tenant's records of a file.
#[derive(Debug)]
pub struct Export {
    pub tenant: String,
    pub records: u64,
    /// The number of the first of them.
    pub first: u64,
    /// The newest of them.
    pub head: Head,
    /// Whether the first is linked to what is before it, too: it is the tenant's first of all, or the file says what was before.
    pub is_anchored: bool,
}

/// A head that was noted before, elsewhere.
#[derive(Debug, Clone)]
pub struct Noted {
    /// Whose; of an export's only tenant if none.
    pub tenant: Option<String>,
    pub head: Head,
}

impl Noted {
    fn is_of(&self, tenant: &str) -> bool {
        self.tenant.as_deref().is_none_or(|whose| whose == tenant)
    }
}

/// What holds for records wherever they are.
#[derive(Default)]
struct Chain {
    noted: Option<Noted>,
    heads: Heads,
    ids: Ids,
    newest: u64,
}

impl Chain {
    /// Takes the next record.
    fn next<'a>(&mut self, line: &Line<'a>) -> Result<Brief<'a>, String> {
        let brief = line.brief().map_err(|error| format!("no usage record: {error}"))?;
        let (tenant, seq) = (&*brief.tenant, line.seq);
        let before = self.heads.get(tenant).copied().unwrap_or_default();
        let due = before.next(line.record.get().as_bytes());
        if seq <= before.seq {
            return Err(format!("record {seq} of tenant {tenant} comes after its record {}", before.seq));
        }
        if seq != due.seq {
            return Err(format!("record {} of tenant {tenant} is missing: the next one is {seq}", due.seq));
        }
        if due.hash != line.hash {
            return Err(format!(
                "record {seq} of tenant {tenant} is not what was written, or one before it is not"
            ));
        }
        self.rest(&brief, due)?;
        self.heads.insert(tenant.into(), due);
        Ok(brief)
    }

    /// What holds beside the hash.
    fn rest(&mut self, brief: &Brief<'_>, head: Head) -> Result<(), String> {
        let (Brief { id, tenant, time }, Head { seq, hash }) = (brief, head);
        if let Some(noted) = self.noted.as_ref().filter(|noted| noted.is_of(tenant))
            && noted.head.seq == seq
            && noted.head.hash != hash
        {
            return Err(format!("record {seq} of tenant {tenant} is another than the one that was noted"));
        }
        if !self.ids.insert(id) {
            return Err(format!("record {seq} of tenant {tenant} has an id that is there already: {id}"));
        }
        if *time < self.newest {
            return Err(format!(
                "record {seq} of tenant {tenant} is of a time before that of a record before it"
            ));
        }
        self.newest = *time;
        Ok(())
    }
}

impl Chain {
    /// That what was noted is not after the end.
    fn ends(&self) -> Result<(), String> {
        let Some(noted) = &self.noted else { return Ok(()) };
        let newest =
            self.heads.iter().filter(|(tenant, _)| noted.is_of(tenant)).map(|(_, head)| head.seq).max();
        match newest.unwrap_or_default() {
            newest if newest < noted.head.seq => {
                Err(format!("record {} was noted, and the newest is {newest}", noted.head.seq))
            }
            _ => Ok(()),
        }
    }
}

/// Ids that were seen. As a meter makes them, two numbers in hex, they take little room.
#[derive(Default)]
struct Ids {
    numbers: HashSet<(u64, u64)>,
    others: HashSet<String>,
}

impl Ids {
    /// Whether it is a new one.
    fn insert(&mut self, id: &str) -> bool {
        let numbers = id.split_once('-').and_then(|(start, number)| {
            let hex = |text: &str| u64::from_str_radix(text, 16).ok();
            Some((hex(start)?, hex(number)?))
        });
        // Written in another way, the same numbers are another id.
        match numbers.filter(|(start, number)| format!("{start:016x}-{number:x}") == id) {
            Some(numbers) => self.numbers.insert(numbers),
            None => self.others.insert(id.to_owned()),
        }
    }
}

/// Reads a whole log and gives its records to `each`, with the place where each ends. A server may write it meanwhile.
///
/// # Errors
/// What is not as it was written, with its file and place.
pub fn log(
    folder: &Path,
    noted: Option<Noted>,
    mut each: impl FnMut(Position, &Record),
) -> anyhow::Result<Verified> {
    let numbers = segment::numbers(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let (mut chain, mut verified) = (Chain { noted, ..Chain::default() }, Verified::default());
    for number in &numbers {
        let is_last = Some(number) == numbers.last();
        let mut reader = match Reader::open(folder, *number) {
            Err(torn @ Bad::Torn { .. }) if is_last => {
                verified.torn = Some(torn.to_string());
                break;
            }
            reader => reader?,
        };
        if reader.opening.anew || verified.segments == 0 {
            verified.since = reader.opening.time;
            chain.newest = chain.newest.max(reader.opening.time);
        }
        if verified.segments == 0 {
            chain.heads = std::mem::take(&mut reader.opening.heads);
        } else if let Some(why) = missing(&chain.heads, &reader.opening.heads) {
            return Err(reader.damaged(Position { segment: *number, offset: 0 }, why).into());
        }
        verified.segments += 1;
        verified.end = reader.at();
        while let Some(at) = take(&mut reader, &mut chain, &mut each, is_last, &mut verified.torn)? {
            verified.records += 1;
            verified.end = at;
        }
    }
    chain.ends().map_err(anyhow::Error::msg)?;
    verified.heads = chain.heads.into_iter().collect();
    Ok(verified)
}

/// Takes the next record of a segment, and gives the place where it ends; none at the segment's end.
fn take(
    reader: &mut Reader,
    chain: &mut Chain,
    each: &mut impl FnMut(Position, &Record),
    is_last: bool,
    torn: &mut Option<String>,
) -> Result<Option<Position>, Bad> {
    let at = reader.at();
    let line = match reader.next() {
        Ok(Some(line)) => line,
        Ok(None) => return Ok(None),
        Err(bad @ Bad::Torn { .. }) if is_last => {
            *torn = Some(bad.to_string());
            return Ok(None);
        }
        Err(bad) => return Err(bad),
    };
    let record =
        chain.next(&line).and_then(|_| line.record().map_err(|error| format!("no usage record: {error}")));
    let end = reader.at();
    match record {
        Ok(record) => each(end, &record),
        Err(why) => return Err(reader.damaged(at, why)),
    }
    Ok(Some(end))
}

/// What is missing between two segments, of which the one has ended with these heads, and the other begins with those.
fn missing(ended: &Heads, begins: &Heads) -> Option<String> {
    let tenants: std::collections::BTreeSet<_> = ended.keys().chain(begins.keys()).collect();
    tenants.into_iter().find_map(|tenant| {
        let of = |heads: &Heads| heads.get(tenant).copied().unwrap_or_default();
        let (ended, begins) = (of(ended), of(begins));
        let due = ended.seq + 1;
        match begins.seq {
            _ if ended == begins => None,
            seq if seq > ended.seq => {
                Some(format!("records {due} to {seq} of tenant {tenant} are missing before it"))
            }
            seq => Some(format!(
                "it begins after record {seq} of tenant {tenant}, and {} are before it",
                ended.seq
            )),
        }
    })
}

/// Reads an export of one tenant's records: a JSON object per line, as the log has them. A first line without a record says what
/// was before.
///
/// # Errors
/// A sentence that says in which line what is wrong.
pub fn export(lines: impl BufRead, noted: Option<Noted>) -> Result<Export, String> {
    let mut chain = Chain { noted, ..Chain::default() };
    let mut export: Option<Export> = None;
    let mut before: Option<Head> = None;
    for (number, line) in (1..).zip(lines.lines()) {
        let wrong = |why: &str| format!("line {number}: {why}");
        let text = line.map_err(|error| wrong(&error.to_string()))?;
        if text.trim().is_empty() {
            continue;
        }
        if export.is_none()
            && before.is_none()
            && let Ok(head) = serde_json::from_str(&text)
        {
            before = Some(head);
            continue;
        }
        let line: Line<'_> = serde_json::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
        let Some(export) = &mut export else {
            let brief = line.brief().map_err(|error| wrong(&error.to_string()))?;
            let tenant: Arc<str> = brief.tenant.as_ref().into();
            let is_anchored = before.is_some() || line.seq == 1;
            if let Some(before) = before {
                chain.heads.insert(Arc::clone(&tenant), before);
            }
            if is_anchored {
                chain.next(&line).map_err(|why| wrong(&why))?;
            } else {
                chain.rest(&brief, line.head()).map_err(|why| wrong(&why))?;
                chain.heads.insert(Arc::clone(&tenant), line.head());
            }
            let (tenant, first, head) = (tenant.to_string(), line.seq, line.head());
            export = Some(Export { tenant, records: 1, first, head, is_anchored });
            continue;
        };
        let brief = chain.next(&line).map_err(|why| wrong(&why))?;
        if *brief.tenant != export.tenant {
            return Err(wrong(&format!(
                "a record of tenant {}, among those of {}",
                brief.tenant, export.tenant
            )));
        }
        export.records += 1;
        export.head = line.head();
    }
    chain.ends()?;
    export.ok_or_else(|| "there is no usage record in it".to_owned())
}
