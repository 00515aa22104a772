//! The ledger: all usage records, in the order in which they were made, in files that only grow at their end.
//!
//! It is the write-ahead log of the sums in the store: what is in it and not yet in those is counted again at the next start.
//! A record is one `write(2)`, so what is written is there after the server was killed; it is on disk after the next sync.
//!
//! `frame.rs` and `segment.rs` are the files' layout, `chain.rs` has the hashes, `read.rs` reads, and `verify.rs` sees that all
//! of it is as it was written.

pub mod chain;
pub mod frame;
pub mod read;
pub mod segment;
#[cfg(test)]
pub mod tests;
pub mod verify;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use self::chain::{Head, Heads};
use self::frame::Bad;
use self::read::Reader;
use self::segment::{FORMAT, Opening, Segment};
use super::record::Record;
use crate::store::{make_folder, sync_folder};

/// A place of the log: between two records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Position {
    pub segment: u64,
    /// Bytes from the segment's start.
    pub offset: u64,
}

/// The ledger as it is written.
pub struct Ledger {
    folder: PathBuf,
    segment: Segment,
    /// Those before it that are still there, oldest first.
    closed: VecDeque<Closed>,
    closed_bytes: u64,
    heads: Heads,
    /// The time of the newest record: milliseconds since 1970.
    newest: u64,
    segment_bytes: u64,
    /// The frame that is made.
    frame: Vec<u8>,
    /// Segments that are closed and not yet synced.
    unsynced: Vec<Arc<File>>,
    synced: Position,
    put: segment::Put,
}

/// A segment that gets no more records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    pub number: u64,
    pub bytes: u64,
    /// The time of its newest record, or of the newest before it.
    pub newest: u64,
}

/// What is written and may not be on disk.
pub struct Unsynced {
    closed: usize,
    files: Vec<Arc<File>>,
    folder: PathBuf,
    end: Position,
}

impl Unsynced {
    /// Has the disk take it.
    ///
    /// # Errors
    /// When it does not: what of it is there after a power cut is not known.
    pub fn sync(&self) -> io::Result<()> {
        for file in &self.files {
            file.sync_data()?;
        }
        // A new one has its name there.
        if self.closed > 0 { sync_folder(&self.folder) } else { Ok(()) }
    }
}

impl Ledger {
    /// Opens the log in a folder, or begins one, and gives all records after a place of it to `each`. A part of a record at
    /// the end, which a crash has left, is cut off. `now` is the wall clock's time, in milliseconds since 1970.
    ///
    /// # Errors
    /// What is not as it was written, with its file and place; a folder that cannot be read or written.
    pub fn open(
        folder: &Path,
        after: Position,
        now: u64,
        segment_bytes: u64,
        mut each: impl FnMut(&Record),
    ) -> anyhow::Result<Self> {
        let cannot = || format!("the usage log {} cannot be opened", folder.display());
        make_folder(folder).with_context(cannot)?;
        let mut numbers = segment::numbers(folder).with_context(cannot)?;
        if let Some(last) = numbers.last().copied()
            && let Err(Bad::Torn { path, at: 0 }) = Reader::open(folder, last)
        {
            tracing::warn!(path = %path.display(), "a segment of the usage log that was never finished is removed");
            fs::remove_file(&path).with_context(cannot)?;
            numbers.pop();
        }
        if let Some(first) = numbers.first().filter(|first| **first > after.segment.max(1)) {
            tracing::warn!(
                first,
                "the usage log has lost segments before its first; what was in them is only in the sums"
            );
        }
        let mut found = Found::default();
        for number in &numbers {
            let is_last = Some(number) == numbers.last();
            found.take(folder, *number, is_last, after, &mut each).with_context(advice)?;
        }
        let Found { closed, heads, mut newest, end, has_records } = found;
        let segment = match end.filter(|end| *end >= after) {
            Some(end) => {
                Segment::reopen(folder, end.segment, end.offset, has_records).with_context(cannot)?
            }
            // A restored backup has the sums and not the log. Nothing may be written before the place up to which they go.
            None => {
                let anew = after > Position::default();
                if anew {
                    tracing::warn!(
                        "the usage log ends before the place up to which it is summed up; a new one begins"
                    );
                    newest = newest.max(now);
                }
                let segment = after.segment.max(numbers.last().copied().unwrap_or_default()) + 1;
                let heads = heads.clone();
                let opening = Opening { format: FORMAT, segment, time: newest, heads, anew };
                Segment::create(folder, &opening).with_context(cannot)?
            }
        };
        let closed: VecDeque<_> =
            closed.into_iter().filter(|closed| closed.number < segment.number).collect();
        // What a killed server has written may not be on disk, and what is summed up must be.
        for number in numbers.iter().filter(|number| **number >= after.segment) {
            File::open(segment::path(folder, *number))
                .and_then(|file| file.sync_all())
                .with_context(cannot)?;
        }
        segment.file.sync_all().with_context(cannot)?;
        sync_folder(folder).with_context(cannot)?;
        Ok(Self {
            folder: folder.to_owned(),
            closed_bytes: closed.iter().map(|closed| closed.bytes).sum(),
            closed,
            heads,
            newest,
            segment_bytes,
            frame: Vec::new(),
            unsynced: Vec::new(),
            synced: Position { segment: segment.number, offset: segment.length },
            segment,
            put: segment::write,
        })
    }

    /// Writes a record behind all others.
    ///
    /// # Errors
    /// When the disk does not take it. It is not in the log then.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let head = self.encode(record)?;
        let bytes = self.frame.len() as u64;
        if self.segment.has_records && self.segment.length.saturating_add(bytes) > self.segment_bytes {
            self.roll()?;
        }
        self.segment.put(&self.frame, self.put)?;
        self.segment.has_records = true;
        self.newest = self.newest.max(record.time);
        match self.heads.get_mut(&record.tenant) {
            Some(newest) => *newest = head,
            None => {
                self.heads.insert(Arc::clone(&record.tenant), head);
            }
        }
        Ok(())
    }

    /// Makes the record's frame, and gives the head that its tenant has after it. The text is made once, in a buffer that stays.
    fn encode(&mut self, record: &Record) -> io::Result<Head> {
        const BEHIND_SEQ: &[u8] = b",\"hash\":\"";
        let before = self.heads.get(&record.tenant).copied().unwrap_or_default();
        let frame = &mut self.frame;
        frame::begin(frame);
        frame.extend_from_slice(b"{\"seq\":");
        serde_json::to_writer(&mut *frame, &before.seq.saturating_add(1))?;
        frame.extend_from_slice(BEHIND_SEQ);
        let at = frame.len();
        frame.extend_from_slice(before.hash.as_bytes());
        frame.extend_from_slice(b"\",\"record\":");
        let text = frame.len();
        serde_json::to_writer(&mut *frame, record)?;
        let head = before.next(frame.get(text..).unwrap_or_default());
        if let Some(hash) = frame.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *hash = *head.hash.as_bytes();
        }
        frame.push(b'}');
        frame::end(frame)?;
        Ok(head)
    }

    /// Begins a new segment.
    fn roll(&mut self) -> io::Result<()> {
        let Segment { number, length: bytes, .. } = self.segment;
        let (time, heads) = (self.newest, std::mem::take(&mut self.heads));
        let opening = Opening { format: FORMAT, segment: number + 1, time, heads, anew: false };
        let made = Segment::create(&self.folder, &opening);
        self.heads = opening.heads;
        let before = std::mem::replace(&mut self.segment, made?);
        self.unsynced.push(before.file);
        self.closed.push_back(Closed { number, bytes, newest: self.newest });
        self.closed_bytes += bytes;
        Ok(())
    }

    /// Where the log ends.
    pub fn end(&self) -> Position {
        Position { segment: self.segment.number, offset: self.segment.length }
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.closed_bytes + self.segment.length
    }

    /// How many segments there are.
    pub fn segments(&self) -> usize {
        self.closed.len() + 1
    }

    /// The time of the newest record: milliseconds since 1970.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The newest record of a tenant.
    #[cfg(test)]
    pub fn head(&self, tenant: &str) -> Option<Head> {
        self.heads.get(tenant).copied()
    }

    /// Whether all that was written is on disk.
    pub fn is_synced(&self) -> bool {
        self.end() == self.synced
    }

    /// What may not be on disk; none if all is.
    pub fn unsynced(&self) -> Option<Unsynced> {
        let end = self.end();
        let files = self.unsynced.iter().chain([&self.segment.file]).map(Arc::clone).collect();
        let (closed, folder) = (self.unsynced.len(), self.folder.clone());
        (!self.is_synced()).then_some(Unsynced { closed, files, folder, end })
    }

    /// That is on disk.
    pub fn synced(&mut self, on_disk: &Unsynced) {
        self.unsynced.drain(..on_disk.closed.min(self.unsynced.len()));
        self.synced = on_disk.end;
    }

    /// The oldest segment that gets no more records.
    pub fn oldest(&self) -> Option<Closed> {
        self.closed.front().copied()
    }

    /// Its file is gone.
    pub fn removed_oldest(&mut self) {
        if let Some(oldest) = self.closed.pop_front() {
            self.closed_bytes = self.closed_bytes.saturating_sub(oldest.bytes);
        }
    }

    /// Where a segment is.
    pub fn path(&self, number: u64) -> PathBuf {
        segment::path(&self.folder, number)
    }

    /// What is in the folder, for who reads it while it is written.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    #[cfg(test)]
    pub fn put_with(&mut self, put: segment::Put) {
        self.put = put;
    }
}

/// What to do where the log is damaged.
fn advice() -> &'static str {
    "the usage log is not as it was written; see docs/metering.md (`weir usage verify`) for what to do"
}

/// What was found of a log that is opened.
#[derive(Default)]
struct Found {
    closed: Vec<Closed>,
    heads: Heads,
    newest: u64,
    end: Option<Position>,
    has_records: bool,
}

impl Found {
    /// Takes the next segment. Those that are summed up already are not read, but for their beginnings.
    fn take(
        &mut self,
        folder: &Path,
        number: u64,
        is_last: bool,
        after: Position,
        each: &mut impl FnMut(&Record),
    ) -> Result<(), Bad> {
        let mut reader = Reader::open(folder, number)?;
        self.newest = self.newest.max(reader.opening.time);
        if let Some(before) = self.closed.last_mut() {
            before.newest = self.newest;
        }
        self.has_records = false;
        if is_last || number >= after.segment {
            self.heads = std::mem::take(&mut reader.opening.heads);
            self.read(&mut reader, is_last, after, each)?;
        }
        let path = segment::path(folder, number);
        let bytes = fs::metadata(&path).map_err(|error| Bad::Read { path, error })?.len();
        self.closed.push(Closed { number, bytes, newest: self.newest });
        self.end = Some(reader.at());
        Ok(())
    }

    fn read(
        &mut self,
        reader: &mut Reader,
        is_last: bool,
        after: Position,
        each: &mut impl FnMut(&Record),
    ) -> Result<(), Bad> {
        loop {
            let at = reader.at();
            let line = match reader.next() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(()),
                Err(torn @ Bad::Torn { .. }) if is_last => {
                    tracing::warn!("{torn}, which a crash has left: it is cut off");
                    return Ok(());
                }
                Err(bad) => return Err(bad),
            };
            let head = line.head();
            let taken = line.brief().map_err(|error| error.to_string()).and_then(|brief| {
                let newest = self.heads.entry(brief.tenant.as_ref().into()).or_default();
                if head.seq != newest.seq + 1 {
                    return Err(format!(
                        "record {} of {} comes after {}",
                        head.seq, brief.tenant, newest.seq
                    ));
                }
                *newest = head;
                self.newest = self.newest.max(brief.time);
                self.has_records = true;
                if at >= after {
                    each(&line.record().map_err(|error| error.to_string())?);
                }
                Ok(())
            });
            taken.map_err(|why| reader.damaged(at, why))?;
        }
    }
}
