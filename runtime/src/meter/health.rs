//! Whether the meter can take records: what keeps the disk from it is told once, and a call does not begin whose record could be
//! lost.

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
    /// Whether one of the causes is a reason to refuse calls.
    refuses: AtomicBool,
    /// Whether there is any.
    is_ill: AtomicBool,
    causes: Mutex<Vec<(Cause, Illness)>>,
}

#[derive(Debug, Clone)]
struct Illness {
    is_full: bool,
    why: String,
    /// Whether calls are refused for it.
    refuses: bool,
}

impl From<&io::Error> for Illness {
    fn from(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let is_full = matches!(error.kind(), Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge);
        Self { is_full, why: error.to_string(), refuses: true }
    }
}

impl From<Illness> for StoreError {
    fn from(Illness { is_full, why, .. }: Illness) -> Self {
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
        if !self.refuses.load(Ordering::Relaxed) {
            return Ok(());
        }
        let causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        let refusing = causes.iter().find(|(_, illness)| illness.refuses);
        refusing.map_or(Ok(()), |(_, illness)| Err(illness.clone().into()))
    }

    /// The disk has refused. Calls are, too, if `refuses`; else they go on, and their records are held.
    pub fn fails(&self, cause: Cause, error: &io::Error, refuses: bool) {
        self.note(cause, Illness { refuses, ..error.into() });
    }

    /// The log has all that it may.
    pub fn full(&self, why: String) {
        self.note(Cause::Budget, Illness { is_full: true, why, refuses: true });
    }

    fn note(&self, cause: Cause, illness: Illness) {
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = causes.iter().position(|(noted, _)| *noted == cause);
        let is_new =
            noted.and_then(|at| causes.get(at)).is_none_or(|(_, was)| !was.refuses && illness.refuses);
        if !is_new {
            return;
        }
        match illness.refuses {
            true => {
                tracing::error!(why = illness.why, "usage records cannot be written, so calls are refused")
            }
            false => {
                tracing::error!(why = illness.why, "usage records cannot be written, and are held in memory")
            }
        }
        causes.retain(|(noted, _)| *noted != cause);
        causes.push((cause, illness));
        self.is_ill.store(true, Ordering::Relaxed);
        self.refuses.store(causes.iter().any(|(_, illness)| illness.refuses), Ordering::Relaxed);
    }

    /// It does not keep the meter from taking records any more.
    pub fn mended(&self, cause: Cause) {
        if !self.is_ill.load(Ordering::Relaxed) {
            return;
        }
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        causes.retain(|(noted, _)| *noted != cause);
        self.refuses.store(causes.iter().any(|(_, illness)| illness.refuses), Ordering::Relaxed);
        if causes.is_empty() {
            self.is_ill.store(false, Ordering::Relaxed);
            tracing::info!("usage records are written again");
        }
    }
}
