//! Reads segments of the ledger, also while one is written.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Position;
use super::chain::{Hash, Head};
use super::frame::{Bad, Frames};
use super::segment::{self, FORMAT, Opening};
use crate::meter::record::Record;

/// A record with its place in its tenant's chain, as the ledger has it. An export has the same, one a line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line<'a> {
    pub seq: u64,
    pub hash: Hash,
    /// The record's text, over which the hash is.
    #[serde(borrow)]
    pub record: &'a RawValue,
}

/// What the ledger looks at of a record.
#[derive(Debug, Deserialize)]
pub struct Brief<'a> {
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    #[serde(borrow)]
    pub tenant: Cow<'a, str>,
    /// Milliseconds since 1970.
    pub time: u64,
}

impl<'a> Line<'a> {
    pub fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash }
    }

    /// # Errors
    /// For a text that is no record.
    pub fn record(&self) -> serde_json::Result<Record> {
        serde_json::from_str(self.record.get())
    }

    /// # Errors
    /// For a text that is no record.
    pub fn brief(&self) -> serde_json::Result<Brief<'a>> {
        serde_json::from_str(self.record.get())
    }
}

/// The records of a segment, in order.
pub struct Reader {
    pub opening: Opening,
    path: PathBuf,
    number: u64,
    frames: Frames,
}

impl Reader {
    /// # Errors
    /// A file that cannot be read, or does not begin as a segment does.
    pub fn open(folder: &Path, number: u64) -> Result<Self, Bad> {
        Self::of(number, Frames::open(&segment::path(folder, number))?)
    }

    /// The same, up to a place of the log: what comes after may be under way.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_until(folder: &Path, number: u64, end: Position) -> Result<Self, Bad> {
        let frames = Frames::open(&segment::path(folder, number))?;
        let offset = if number < end.segment { u64::MAX } else { end.offset };
        Self::of(number, frames.until(offset))
    }

    fn of(number: u64, mut frames: Frames) -> Result<Self, Bad> {
        let path = frames.path().to_owned();
        let damaged = |why: String| Bad::Damaged { path: path.clone(), at: 0, why };
        let Some(first) = frames.next()? else {
            return Err(Bad::Torn { path, at: 0 });
        };
        let opening: Opening = serde_json::from_slice(first)
            .map_err(|error| damaged(format!("it does not begin as a segment does: {error}")))?;
        if opening.format > FORMAT {
            let Opening { format, .. } = opening;
            return Err(damaged(format!(
                "it has format {format}, and this weir knows formats up to {FORMAT}"
            )));
        }
        if opening.segment != number {
            return Err(damaged(format!("it is segment {}, under another's name", opening.segment)));
        }
        Ok(Self { opening, path, number, frames })
    }

    /// Goes on with the record that begins there.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn skip_to(&mut self, offset: u64) -> Result<(), Bad> {
        self.frames.skip_to(offset)
    }

    /// Where the next record begins.
    pub fn at(&self) -> Position {
        Position { segment: self.number, offset: self.frames.at() }
    }

    /// The next record; none at the segment's end.
    ///
    /// # Errors
    /// What is there instead.
    pub fn next(&mut self) -> Result<Option<Line<'_>>, Bad> {
        let at = self.frames.at();
        let Some(payload) = self.frames.next()? else { return Ok(None) };
        match serde_json::from_slice(payload) {
            Ok(line) => Ok(Some(line)),
            Err(error) => {
                Err(Bad::Damaged { path: self.path.clone(), at, why: format!("no usage record: {error}") })
            }
        }
    }

    /// That the record which begins there is not what it must be.
    pub fn damaged(&self, at: Position, why: impl ToString) -> Bad {
        Bad::Damaged { path: self.path.clone(), at: at.offset, why: why.to_string() }
    }
}
