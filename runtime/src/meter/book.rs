//! What is under the meter's lock: the log's end, what was written and is not yet in the store's sums, and what the disk has not
//! taken.

use std::collections::VecDeque;
use std::io;

use super::ledger::{Ledger, Position};
use super::record::Record;
use super::rollup::Batch;
use super::totals::Totals;
use crate::config::{MeteringConfig, WhenFull};

pub struct Book {
    pub ledger: Ledger,
    pub config: MeteringConfig,
    /// Of the records between `from` and the log's end.
    totals: Totals,
    from: Position,
    /// Records that the disk has not taken, in their order. They are not in the log, and not in the totals.
    held: VecDeque<Record>,
    pub counts: Counts,
    /// How full the log was when that was looked at last.
    pub seen: Room,
}

/// What has become of a record that the disk did not take.
#[derive(Debug)]
pub enum Untaken {
    /// It is in memory, and will be written when the disk takes some again.
    Held(io::Error),
    /// It is nowhere: as many are held as may be.
    Lost(io::Error),
}

/// What has been counted since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Records that were written.
    pub records: u64,
    /// Records that are nowhere: the disk took none, and as many were held as may be.
    pub lost: u64,
    /// Segments that were removed because they were as old as they may be.
    pub expired: u64,
    /// Segments that were removed because the log had all the bytes that it may.
    pub dropped: u64,
}

impl Book {
    /// `totals` are of the records between `from` and the log's end.
    pub fn new(ledger: Ledger, from: Position, totals: Totals, config: MeteringConfig) -> Self {
        Self {
            ledger,
            config,
            totals,
            from,
            held: VecDeque::new(),
            counts: Counts::default(),
            seen: Room::Enough,
        }
    }

    /// Writes a record, after those that are held. One that the disk does not take is held.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn put(&mut self, record: &Record) -> Result<(), Untaken> {
        let Err(error) = self.retry().and_then(|()| self.write(record)) else { return Ok(()) };
        if self.held.len() < self.config.held_records {
            self.held.push_back(record.clone());
            return Err(Untaken::Held(error));
        }
        self.counts.lost += 1;
        tracing::error!(id = record.id, tenant = %record.tenant, %error, "a usage record is lost");
        Err(Untaken::Lost(error))
    }

    /// Whether new calls are refused while the disk takes no records: at once, if the operator wants it so, and else when no
    /// more can be held than those of the calls that run.
    pub fn refuses_unwritten(&self) -> bool {
        self.config.when_full == WhenFull::Refuse || self.held.len() >= self.config.held_records / 2
    }

    /// Writes what is held.
    ///
    /// # Errors
    /// When the disk does not take it. It is held on.
    pub fn retry(&mut self) -> io::Result<()> {
        while let Some(oldest) = self.held.pop_front() {
            if let Err(error) = self.write(&oldest) {
                self.held.push_front(oldest);
                return Err(error);
            }
        }
        Ok(())
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        self.ledger.append(record)?;
        self.totals.add(record);
        self.counts.records += 1;
        Ok(())
    }

    /// How many records are held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// What was written since the last batch.
    pub fn take(&mut self) -> Batch {
        let (from, to) = (self.from, self.ledger.end());
        self.from = to;
        Batch { totals: self.totals.take(), from, to }
    }

    /// What was written since the last batch, and from where on.
    pub fn since(&self) -> (Position, &Totals) {
        (self.from, &self.totals)
    }

    /// How full the log is.
    pub fn room(&self) -> Room {
        let (used, most) = (self.ledger.bytes(), self.config.disk_bytes.as_u64());
        if used < most / 5 * 4 {
            Room::Enough
        } else if used < most {
            Room::Scarce
        } else {
            Room::None
        }
    }

    /// Whether new calls are refused for want of room, without waiting for some to be made.
    pub fn refuses(&self) -> bool {
        self.config.when_full == WhenFull::Refuse && self.room() == Room::None
    }
}

/// How full the log is, of what it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Enough,
    /// Four fifths and more.
    Scarce,
    None,
}
