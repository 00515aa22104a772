//! What the meter does beside the calls' path: sync what was written, add it to the sums in the store, remove what is old, and
//! make room. All of it may be cut off at any moment.

use std::io;

use super::book::{Book, Room};
use super::health::Cause;
use super::ledger::Closed;
use super::{Kept, Meter};
use crate::config::WhenFull;
use crate::store::{Store, StoreError};
use crate::units::Size;

impl Meter {
    /// Keeps the log, for as long as it is polled.
    pub async fn run(&self, store: &Store) {
        if let Some(kept) = &self.kept {
            tokio::join!(self.keep_synced(kept), self.keep_summed(kept, store));
        }
    }

    async fn keep_synced(&self, kept: &Kept) {
        loop {
            kept.wrote.notified().await;
            let interval = kept.book().config.sync_interval;
            tokio::time::sleep(interval).await;
            // What is wrong is said, and kept from doing harm, by `health`. It is tried again after the next interval.
            if self.sync().await.is_err() {
                kept.wrote.notify_one();
            }
        }
    }

    async fn keep_summed(&self, kept: &Kept, store: &Store) {
        loop {
            let interval = kept.book().config.flush_interval;
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = kept.full.notified() => {}
            }
            if let Err(error) = self.flush(store).await {
                tracing::warn!(%error, "usage records are not added to the sums; that is tried again");
            }
            self.make_room(store).await;
        }
    }

    /// Writes what is held, and has the disk take all that was written up to now.
    ///
    /// # Errors
    /// When it does not.
    pub async fn sync(&self) -> Result<(), StoreError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let _one = kept.syncing.lock().await;
        let (retried, unsynced) = {
            let mut book = kept.book();
            (book.retry(), book.ledger.unsynced())
        };
        match &retried {
            Ok(()) => self.health.mended(Cause::Write),
            Err(error) => self.health.fails(Cause::Write, error, kept.book().refuses_unwritten()),
        }
        if let Some(unsynced) = unsynced {
            let sync = move || unsynced.sync().map(|()| unsynced);
            match tokio::task::spawn_blocking(sync).await.map_err(io::Error::other).flatten() {
                Ok(synced) => kept.synced(&synced),
                Err(error) => {
                    self.health.fails(Cause::Sync, &error, kept.book().refuses_unwritten());
                    return Err(super::health::refusal(&error));
                }
            }
        }
        self.health.mended(Cause::Sync);
        retried.map_err(|error| super::health::refusal(&error))
    }

    /// Adds what was written up to now to the sums in the store.
    ///
    /// # Errors
    /// When the store does not take it. It is tried again at the next time.
    pub async fn flush(&self, store: &Store) -> Result<(), StoreError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        // On disk before it is in the sums: what these have must not be written again at the same place of the log.
        kept.rollup.flush(store, || kept.book().take(), || self.sync()).await
    }

    /// Removes segments that are as old as they may be, and those that there is no room for. None goes that is not summed up.
    pub async fn make_room(&self, store: &Store) {
        let Some(kept) = &self.kept else { return };
        let summed = match store.usage_position().await {
            Ok(position) => position.segment,
            Err(error) => {
                tracing::warn!(%error, "it is not known what of the usage log is summed up, so none of it is removed");
                return;
            }
        };
        let until = {
            let keep = u64::try_from(kept.book().config.keep.as_millis()).unwrap_or(u64::MAX);
            self.clock.now().saturating_sub(keep)
        };
        while kept.remove_oldest(summed, Why::Old { until }).await {
            kept.book().counts.expired += 1;
        }
        while kept.remove_oldest(summed, Why::NoRoom).await {
            kept.book().counts.dropped += 1;
            tracing::warn!(
                "the usage log had all the bytes that it may (metering.disk_bytes): its oldest records are removed; they \
                 stay in the sums"
            );
        }
        self.look_for_room(kept);
    }

    /// Warns where there is little room, and has calls refused where there is none.
    fn look_for_room(&self, kept: &Kept) {
        let (room, was, used, most) = {
            let mut book = kept.book();
            let room = book.room();
            let was = std::mem::replace(&mut book.seen, room);
            (room, was, Size::bytes(book.ledger.bytes()), book.config.disk_bytes)
        };
        match room {
            Room::None => self.has_no_room(),
            _ => self.health.mended(Cause::Budget),
        }
        if room != Room::Enough && was == Room::Enough {
            tracing::warn!("the usage log has {used}, of {most} that it may have (metering.disk_bytes)");
        }
    }

    pub(super) fn has_no_room(&self) {
        self.health.full("the usage log has all the bytes that it may (metering.disk_bytes)".to_owned());
    }

    /// Adds all that was recorded to the sums, and has the disk take it. The server has stopped.
    pub async fn close(&self, store: &Store) {
        if let Err(error) = self.flush(store).await {
            tracing::warn!(%error, "usage records are not added to the sums; the next start does that");
        }
        if let Err(error) = self.sync().await {
            tracing::error!(%error, "usage records may not be on disk");
        }
        let held = self.stats().held;
        if held > 0 {
            tracing::error!(held, "usage records that the disk has not taken are lost");
        }
    }
}

/// Why a segment goes.
#[derive(Clone, Copy)]
enum Why {
    /// Its newest record is from before then: milliseconds since 1970.
    Old {
        until: u64,
    },
    NoRoom,
}

impl Why {
    fn holds(self, book: &Book, oldest: &Closed) -> bool {
        match self {
            Self::Old { until } => oldest.newest < until,
            Self::NoRoom => book.config.when_full == WhenFull::DropOldest && book.room() == Room::None,
        }
    }
}

impl Kept {
    fn synced(&self, synced: &super::ledger::Unsynced) {
        let mut book = self.book();
        book.ledger.synced(synced);
        let is_synced = book.ledger.is_synced();
        drop(book);
        if !is_synced {
            self.wrote.notify_one();
        }
    }

    /// Removes the oldest segment, if it is summed up and may go; whether it did.
    async fn remove_oldest(&self, summed: u64, why: Why) -> bool {
        let removal = {
            let book = self.book();
            let may_go = |oldest: &Closed| oldest.number < summed && why.holds(&book, oldest);
            book.ledger.oldest().filter(may_go).map(|oldest| book.ledger.path(oldest.number))
        };
        let Some(path) = removal else { return false };
        let removed = tokio::task::spawn_blocking(move || match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
        match removed.await.map_err(io::Error::other).flatten() {
            Ok(()) => self.book().ledger.removed_oldest(),
            Err(error) => {
                tracing::warn!(%error, "an old segment of the usage log cannot be removed");
                return false;
            }
        }
        true
    }
}
