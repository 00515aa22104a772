//! What calls use, kept for the bill.
//!
//! [`Meter`] is the door. A record goes to the end of the log (`ledger/`) before its call's answer ends, and into totals in
//! memory (`totals.rs`). At an interval, when somebody asks, and at the stop these are added to the sums of hours in the store
//! (`rollup.rs`), together with the place in the log up to which they go; at the start the log after that place is read into
//! the totals again. So nothing is counted twice, and nothing is left out, whenever the server was killed.
//!
//! `bill.rs` is where what a call uses is written down, `rest.rs` has what comes after its record, and `residency.rs` what is
//! no call's. `record.rs` says what is in a record; `clock.rs` has its time; `book.rs` is what is under the lock; `health.rs` keeps calls
//! from beginning whose records could not be taken; `keeping.rs` syncs, sums up, and makes room.

pub mod bill;
mod book;
pub mod clock;
pub mod filter;
pub mod find;
pub mod focus;
mod health;
mod keeping;
pub mod ledger;
mod live;
pub mod money;
pub mod quantities;
pub mod query;
pub mod record;
pub mod residency;
pub mod rest;
pub mod rollup;
#[cfg(test)]
mod tests;
pub mod totals;
pub mod verify;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use self::book::{Book, Room, Untaken};
use self::clock::{Clock, Machine, Sources};
use self::health::{Cause, Health};
use self::ledger::{Ledger, Position};
use self::record::Record;
use self::rest::Rests;
use self::rollup::Rollup;
use self::totals::Totals;
use crate::config::MeteringConfig;
use crate::store::StoreError;

/// The log's folder, in the data directory.
pub const FOLDER: &str = "usage";

/// The door to what is kept of what calls use.
pub struct Meter {
    clock: Clock<Box<dyn Sources>>,
    /// What all ids of this start begin with.
    start: String,
    ids: AtomicU64,
    health: Health,
    /// None where there is no metering.
    kept: Option<Kept>,
    /// What calls have used after their records.
    pub rests: Rests,
}

/// What a meter keeps.
struct Kept {
    book: Mutex<Book>,
    rollup: Rollup,
    syncing: tokio::sync::Mutex<()>,
    /// There is something to sync.
    wrote: Notify,
    /// There is no room.
    full: Notify,
}

/// How the meter does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Records that were written since the start.
    pub records: u64,
    /// Records that are held in memory because the disk takes none.
    pub held: u64,
    /// Records that are nowhere, since the start.
    pub lost: u64,
    /// Segments of the log, and their bytes.
    pub segments: u64,
    pub bytes: u64,
    /// The bytes that it may have.
    pub most_bytes: u64,
    /// Segments that were removed since the start: for their age, and for want of room.
    pub expired: u64,
    pub dropped: u64,
    /// How often the wall clock was found to have been set back.
    pub clock_steps: u64,
    /// Whether new calls are refused.
    pub refuses: bool,
}

impl Meter {
    /// Opens the usage log of a data directory, or begins one, and counts again what is in it after the place up to which the
    /// store's sums go.
    ///
    /// # Errors
    /// A log that is not as it was written, with file and place; a folder that cannot be read or written.
    pub fn open(root: &Path, summed: Position, config: &MeteringConfig) -> anyhow::Result<Self> {
        Self::open_with(Box::new(Machine::default()), root, summed, config)
    }

    /// The same with other clocks.
    pub(crate) fn open_with(
        sources: Box<dyn Sources>,
        root: &Path,
        summed: Position,
        config: &MeteringConfig,
    ) -> anyhow::Result<Self> {
        let (mut newest, mut kept) = (0, None);
        if config.enabled {
            let (size, mut totals) = (config.segment_bytes.as_u64(), Totals::default());
            let now = u64::try_from(sources.wall().as_millis()).unwrap_or(u64::MAX);
            let ledger = Ledger::open(&root.join(FOLDER), summed, now, size, |record| totals.add(record))?;
            newest = ledger.newest();
            kept = Some(Kept {
                book: Mutex::new(Book::new(ledger, summed, totals, config.clone())),
                rollup: Rollup::default(),
                syncing: tokio::sync::Mutex::default(),
                wrote: Notify::new(),
                full: Notify::new(),
            });
        } else {
            tracing::warn!("metering.enabled is false: calls leave no usage records");
        }
        Ok(Self {
            clock: Clock::new(sources, newest),
            start: hex::encode(crate::random::<8>()?),
            ids: AtomicU64::new(0),
            health: Health::default(),
            kept,
            rests: Rests::default(),
        })
    }

    /// Writes a record to the log, with an id if it has none, and this moment as its time. When it returns, a server that is
    /// killed does not lose it; unless the disk takes nothing: then records are held in memory, and written when it does again.
    ///
    /// # Errors
    /// When it is nowhere, as the disk takes none and as many are held as may be: whoever gets the answer must not take it for a
    /// whole one.
    pub fn record(&self, record: &mut Record) -> Result<(), StoreError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        if record.id.is_empty() {
            record.id = self.next_id();
        }
        let mut book = kept.book();
        // Under the lock, so that records are in the log in the order of their times.
        record.time = self.clock.now();
        let was_synced = book.ledger.is_synced();
        let put = book.put(record);
        let (room, refuses, refuses_unwritten) = (book.room(), book.refuses(), book.refuses_unwritten());
        drop(book);
        if room == Room::None {
            if refuses {
                self.has_no_room();
            }
            kept.full.notify_one();
        }
        if was_synced {
            kept.wrote.notify_one();
        }
        match put {
            Ok(()) => {
                self.health.mended(Cause::Write);
                Ok(())
            }
            Err(Untaken::Held(error)) => {
                self.health.fails(Cause::Write, &error, refuses_unwritten);
                kept.wrote.notify_one();
                Ok(())
            }
            Err(Untaken::Lost(error)) => {
                self.health.fails(Cause::Write, &error, true);
                kept.wrote.notify_one();
                Err(health::refusal(&error))
            }
        }
    }

    /// Whether there are records.
    pub fn is_on(&self) -> bool {
        self.kept.is_some()
    }

    /// How often what belongs to no call's record is to be recorded.
    pub fn interval(&self) -> Duration {
        self.kept.as_ref().map_or(Duration::MAX, |kept| kept.book().config.flush_interval)
    }

    /// An id for a record, unlike any other's.
    pub fn next_id(&self) -> String {
        let number = self.ids.fetch_add(1, Ordering::Relaxed) + 1;
        let digits = (u64::BITS - number.leading_zeros()).div_ceil(4);
        let mut id = String::with_capacity(self.start.len() + 17);
        id.push_str(&self.start);
        id.push('-');
        let digit = |place: u32| u8::try_from((number >> (4 * place)) & 15).unwrap_or_default();
        let hex = |digit: u8| char::from(if digit < 10 { b'0' + digit } else { b'a' + (digit - 10) });
        id.extend((0..digits).rev().map(|place| hex(digit(place))));
        id
    }

    /// Milliseconds since 1970, UTC, by the clock that records have, which never goes back.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// That a new call may begin, as its record can be taken. One that is refused for this leaves no record.
    ///
    /// # Errors
    /// Why not: the disk takes nothing, or the log has all that it may.
    pub fn admit(&self) -> Result<(), StoreError> {
        self.health.check()
    }

    /// How it does.
    pub fn stats(&self) -> Stats {
        let Some(kept) = &self.kept else { return Stats::default() };
        let book = kept.book();
        Stats {
            records: book.counts.records,
            held: book.held() as u64,
            lost: book.counts.lost,
            segments: book.ledger.segments() as u64,
            bytes: book.ledger.bytes(),
            most_bytes: book.config.disk_bytes.as_u64(),
            expired: book.counts.expired,
            dropped: book.counts.dropped,
            clock_steps: self.clock.steps(),
            refuses: self.health.check().is_err(),
        }
    }

    /// Takes over the settings that can change while it runs.
    pub fn reload(&self, config: &MeteringConfig) {
        if let Some(kept) = &self.kept {
            kept.book().config = config.clone();
            kept.full.notify_one();
        }
    }

    /// Where the log's folder is, and up to where it may be read; none where there is no metering.
    pub fn log(&self) -> Option<(std::path::PathBuf, Position)> {
        let book = self.kept.as_ref()?.book();
        Some((book.ledger.folder().to_owned(), book.ledger.end()))
    }
}

impl Kept {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
