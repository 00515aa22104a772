//! Whether the meter can take records, so that a call whose record it could not take does not begin.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::store::StoreError;

/// What may keep the meter from taking records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The log's file takes no more.
    Write,
    /// What was written does not get to the disk.
    Sync,
    /// The log has all the bytes that it may.
    Budget,
}

/// What keeps the meter from taking records now.
#[derive(Default)]
pub struct Health {
    is_ill: AtomicBool,
    causes: Mutex<Vec<(Cause, Illness)>>,
}

#[derive(Debug, Clone)]
struct Illness {
    is_full: bool,
    why: String,
}

impl From<&io::Error> for Illness {
    fn from(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let is_full = matches!(error.kind(), Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge);
        Self { is_full, why: error.to_string() }
    }
}

impl From<Illness> for StoreError {
    fn from(Illness { is_full, why }: Illness) -> Self {
        let why = format!("usage records cannot be taken: {why}");
        if is_full { Self::Full(why) } else { Self::Unavailable(why) }
    }
}

/// The refusal for who was to write something that the disk has not taken.
pub fn refusal(error: &io::Error) -> StoreError {
    Illness::from(error).into()
}

impl Health {
    /// That new calls may begin.
    ///
    /// # Errors
    /// Why not: [`StoreError::Full`] or [`StoreError::Unavailable`].
    pub fn check(&self) -> Result<(), StoreError> {
        if !self.is_ill.load(Ordering::Relaxed) {
            return Ok(());
        }
        let causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        causes.first().map_or(Ok(()), |(_, illness)| Err(illness.clone().into()))
    }

    /// The disk has refused.
    pub fn fails(&self, cause: Cause, error: &io::Error) {
        self.note(cause, error.into());
    }

    /// The log has all that it may.
    pub fn full(&self, why: String) {
        self.note(Cause::Budget, Illness { is_full: true, why });
    }

    fn note(&self, cause: Cause, illness: Illness) {
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        if causes.iter().all(|(noted, _)| *noted != cause) {
            tracing::error!(why = illness.why, "usage records cannot be taken, so calls are refused");
            causes.push((cause, illness));
            self.is_ill.store(true, Ordering::Relaxed);
        }
    }

    /// It does not keep the meter from taking records any more.
    pub fn mended(&self, cause: Cause) {
        if !self.is_ill.load(Ordering::Relaxed) {
            return;
        }
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        causes.retain(|(noted, _)| *noted != cause);
        if causes.is_empty() {
            self.is_ill.store(false, Ordering::Relaxed);
            tracing::info!("usage records are taken again");
        }
    }
}
