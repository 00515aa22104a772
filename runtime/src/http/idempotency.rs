//! Requests that are done once, however often they are sent: what a client that saw no answer sends again, with the same
//! `Idempotency-Key`.
//!
//! What such a request makes may have a secret, which is shown once and not kept, so its answer cannot be given again: that it
//! was done is said, and what came of it. Remembered in memory for a day; so many at most, and of one asker's fewer. What is
//! under way is not forgotten for others: only its own claim ends it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::problem::{Code, Problem};
use crate::access::Principal;

pub const HEADER: &str = "Idempotency-Key";

/// What may be in the header.
pub const PATTERN: &str = "^[!-~]{1,255}$";
const LONGEST: usize = 255;

/// How long a request is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// The most that are remembered, in all and of one asker. The oldest that are done make room.
const MOST: usize = 10_000;
const MOST_OF_ONE: usize = 100;

/// Whose text it is, and the text.
type Id = (Option<Arc<str>>, Arc<str>);

struct Entry {
    request: [u8; 32],
    began: Instant,
    /// What came of it, once it is done: the rest of "this was done before, and …".
    done: Option<String>,
}

/// The requests that are remembered.
#[derive(Clone, Default)]
pub struct Once(Arc<Mutex<HashMap<Id, Entry>>>);

/// A request that is done now. Dropped before it is done, it may be sent again.
pub struct Claim {
    once: Once,
    id: Id,
    done: bool,
}

impl Once {
    fn entries(&self) -> MutexGuard<'_, HashMap<Id, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim to do a request, if it is to be done once. `request` is all that makes it this request.
    ///
    /// # Errors
    /// When it has been done or is under way, when its text stands for another request, when that is no text, or when as many
    /// are under way as may be.
    pub fn claim(
        &self,
        principal: &Principal,
        headers: &HeaderMap,
        request: &impl Serialize,
    ) -> Result<Option<Claim>, Problem> {
        let Some(key) = headers.get(HEADER) else { return Ok(None) };
        let key = key.to_str().ok().filter(|key| {
            (1..=LONGEST).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
        });
        let key = key.ok_or_else(|| {
            let detail = format!("{HEADER} must be 1 to {LONGEST} characters of ASCII, without spaces");
            Problem::new(Code::InvalidRequest, detail)
        })?;
        let request = serde_json::to_vec(request).map_err(|error| Problem::internal(&error.into()))?;
        let request: [u8; 32] = Sha256::digest(request).into();
        let id: Id = (principal.key.clone(), key.into());
        let mut entries = self.entries();
        entries.retain(|_, entry| entry.done.is_none() || entry.began.elapsed() < REMEMBERED);
        if let Some(entry) = entries.get(&id) {
            return Err(match &entry.done {
                _ if entry.request != request => Problem::new(
                    Code::IdempotencyMismatch,
                    format!("this {HEADER} was sent with another request; use a new one"),
                ),
                Some(done) => Problem::new(Code::Conflict, format!("this was done before, and {done}")),
                None => Problem::new(Code::Conflict, "this is being done by a request with the same key"),
            });
        }
        make_room(&mut entries, MOST_OF_ONE, |(asker, _)| *asker == id.0)?;
        make_room(&mut entries, MOST, |_| true)?;
        entries.insert(id.clone(), Entry { request, began: Instant::now(), done: None });
        drop(entries);
        Ok(Some(Claim { once: self.clone(), id, done: false }))
    }
}

/// Has fewer than `most` be remembered of these.
///
/// # Errors
/// When so many are under way.
fn make_room(entries: &mut HashMap<Id, Entry>, most: usize, of: impl Fn(&Id) -> bool) -> Result<(), Problem> {
    let theirs = || entries.iter().filter(|(id, _)| of(id));
    if theirs().count() < most {
        return Ok(());
    }
    let done = theirs().filter(|(_, entry)| entry.done.is_some());
    let Some(oldest) = done.min_by_key(|(_, entry)| entry.began).map(|(id, _)| id.clone()) else {
        let detail = format!("{most} requests with an {HEADER} are under way, the most at one time");
        return Err(Problem::new(Code::ServerOverloaded, detail));
    };
    entries.remove(&oldest);
    Ok(())
}

impl Claim {
    /// It is done, and made this key.
    pub fn done(self, made: &str) {
        self.and(format!(
            "made key `{made}`, which was shown then; if it was not seen, revoke it and make another"
        ));
    }

    /// It is done, and gave this credit.
    pub fn credited(self, id: &str) {
        self.and(format!("gave credit `{id}`"));
    }

    /// It is done, and all of the traffic went to this revision.
    pub fn rolled_back(self, revision: u64) {
        self.and(format!("gave all of the traffic to revision {revision}"));
    }

    fn and(mut self, what: String) {
        if let Some(entry) = self.once.entries().get_mut(&self.id) {
            entry.done = Some(what);
        }
        self.done = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.done {
            self.once.entries().remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Role;

    fn claim(once: &Once, asker: &str, key: &str, request: &str) -> Result<Option<Claim>, Code> {
        let key_of_asker = Some(asker.into());
        let principal = Principal { key: key_of_asker, role: Role::Operator, tenant: None, functions: None };
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, key.parse().unwrap());
        once.claim(&principal, &headers, &request).map_err(|problem| problem.code)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_done_once_and_one_that_failed_may_be_tried_again() {
        let once = Once::default();
        let first = claim(&once, "a", "k", "r").unwrap().unwrap();
        assert_eq!(claim(&once, "a", "k", "r").err(), Some(Code::Conflict), "it is under way");
        drop(first);
        claim(&once, "a", "k", "r").unwrap().unwrap().done("made");
        assert_eq!(claim(&once, "a", "k", "r").err(), Some(Code::Conflict), "it is done");
        assert_eq!(claim(&once, "a", "k", "other").err(), Some(Code::IdempotencyMismatch));
        assert!(claim(&once, "b", "k", "other").is_ok(), "it is somebody else's text");
        for bad in ["", "a b", &"x".repeat(256)] {
            assert_eq!(claim(&once, "a", bad, "r").err(), Some(Code::InvalidRequest), "{bad}");
        }
        tokio::time::advance(REMEMBERED).await;
        assert!(claim(&once, "a", "k", "other").is_ok(), "it is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_remembered_and_the_oldest_make_room() {
        let once = Once::default();
        let claims = |asker: &str, key: usize| {
            claim(&once, asker, &key.to_string(), "r").unwrap().unwrap().done("made");
        };
        claims("quiet", 0);
        for key in 0..=MOST_OF_ONE {
            claims("loud", key);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(once.entries().len(), MOST_OF_ONE + 1);
        assert!(claim(&once, "loud", "0", "r").is_ok(), "its oldest is forgotten");
        assert!(claim(&once, "quiet", "0", "r").is_err(), "and nobody else's");
        for asker in 0..MOST {
            claim(&once, &asker.to_string(), "k", "r").unwrap().unwrap().done("made");
        }
        assert_eq!(once.entries().len(), MOST);
    }

    /// Has as many others be remembered as may be in all.
    fn flood(once: &Once, done: Option<&str>) {
        let mut entries = once.entries();
        for asker in entries.len()..MOST {
            let entry = Entry { request: [0; 32], began: Instant::now(), done: done.map(str::to_owned) };
            entries.insert((Some(asker.to_string().into()), "of the flood".into()), entry);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_under_way_is_not_forgotten_for_others() {
        let once = Once::default();
        let mut own: Vec<Claim> =
            (0..MOST_OF_ONE).map(|key| claim(&once, "a", &key.to_string(), "r").unwrap().unwrap()).collect();
        assert_eq!(claim(&once, "a", "more", "r").err(), Some(Code::ServerOverloaded), "of one asker");
        own.remove(0).done("made");
        let more = claim(&once, "a", "more", "r").unwrap().expect("what is done makes room");
        tokio::time::advance(Duration::from_secs(1)).await;
        flood(&once, Some("made"));
        for asker in 0..MOST_OF_ONE {
            claim(&once, &format!("next {asker}"), "k", "r").unwrap().unwrap().done("made");
        }
        for key in 1..MOST_OF_ONE {
            assert_eq!(claim(&once, "a", &key.to_string(), "r").err(), Some(Code::Conflict), "{key}");
        }
        drop((own, more));

        let once = Once::default();
        flood(&once, None);
        assert_eq!(claim(&once, "quiet", "k", "r").err(), Some(Code::ServerOverloaded), "of all");
    }
}
