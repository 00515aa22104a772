//! The audit log: who changed what, when, from where, and how it ended.
//!
//! What was changed is written in the same transaction as the change (`store/change.rs`), so that neither is there without
//! the other. What was refused is written by the guard (`http/guard.rs`). Entries are numbered from 1 without a gap, and
//! each has a hash over the hash before it and its own text: to alter, leave out or insert one, all that follow must be
//! made anew, and the newest hash, noted elsewhere, tells.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dashmap::DashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::access::Role;
use crate::name::Name;
use crate::rates::{Limited, Rate};

/// Who asks, from where, and for what.
#[derive(Debug, Clone, Default)]
pub struct Actor {
    /// The key's id; none without a key that is good.
    pub key: Option<String>,
    /// The key's role; none for the server itself, and without a key that is good.
    pub role: Option<Role>,
    /// The tenant that is meant.
    pub tenant: Option<String>,
    pub from: Option<IpAddr>,
    /// The request's method and path.
    pub request: String,
}

impl Actor {
    /// The longest request that is told.
    const LONGEST: usize = 300;

    /// The server, of its own accord.
    pub fn server(what: &str) -> Self {
        Self { request: what.to_owned(), ..Self::default() }
    }

    /// A request, cut to what is worth telling.
    pub fn request(method: &http::Method, path: &str) -> String {
        format!("{method} {path}").chars().take(Self::LONGEST).collect()
    }
}

/// A definition that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    /// `functions`, `models`, `tenants`, `keys`, `rate_cards`, `billing`, `credits`, or `settings` of the configuration file
    /// and the policy.
    pub kind: String,
    pub name: String,
    /// SHA-256 of the definition before; none if it is new.
    pub before: Option<String>,
    /// SHA-256 of the definition after; none if it was removed.
    pub after: Option<String>,
}

/// What one line of the log says. The order of its fields is part of the text that is hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    pub number: i64,
    /// RFC 3339.
    pub at: String,
    /// Whose things it was about.
    pub tenant: Option<String>,
    /// The id of the key by which it was asked.
    pub key: Option<String>,
    /// The key's role; none for what the server did itself, and for keys that were no good.
    pub role: Option<Role>,
    /// The address that it was asked from.
    pub from: Option<IpAddr>,
    /// The request's method and path.
    pub request: String,
    /// `done`, or the code of the problem.
    pub outcome: String,
    pub changed: Vec<Changed>,
    /// Refusals of the same tenant before this one that are not in the log: more came than are written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What an entry says of an outcome that is no problem.
pub const DONE: &str = "done";

/// The hash before the first entry.
pub const START: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// An entry's hash: SHA-256 over the hash before it, in hex, and its text, as they are.
pub fn link(before: &str, entry: &str) -> String {
    linked(before.as_bytes(), entry.as_bytes()).map(char::from).iter().collect()
}

/// The same, of bytes, without memory of its own: usage records are linked in this way too.
pub(crate) fn linked(before: &[u8], entry: &[u8]) -> [u8; 64] {
    let digit = |half: u8| if half < 10 { b'0' + half } else { b'a' + (half - 10) };
    let digest = Sha256::new().chain_update(before).chain_update(entry).finalize();
    let mut hex = [0; 64];
    for (pair, byte) in hex.as_chunks_mut::<2>().0.iter_mut().zip(digest) {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
    hex
}

/// The digest of a definition as it is kept.
pub fn digest(definition: &str) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(definition)))
}

/// How many refusals are written for each tenant, and for all those without a key that is good: so many at once, and one a
/// second. More would let whoever is refused fill the disk.
const REFUSALS: NonZeroU32 = NonZeroU32::new(100).unwrap();

/// The refusals that are written, and the number of those that are not.
pub struct Refusals {
    since: Instant,
    of: DashMap<Whose, Refused>,
}

/// Who was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Whose {
    /// Somebody without a key that is good.
    Stranger,
    /// Somebody with a key of this tenant, or of none.
    Of(Option<Name>),
}

struct Refused {
    rate: Limited,
    left_out: AtomicU64,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { since: Instant::now(), of: DashMap::new() }
    }
}

impl Refusals {
    /// Whether a refusal is written, and if so how many before it were not.
    pub fn take(&self, whose: Whose) -> Option<u64> {
        let refused = self.of.entry(whose).or_insert_with(|| {
            let rate = Limited::default();
            rate.set(Some(Rate { per_second: NonZeroU32::MIN, burst: REFUSALS }));
            Refused { rate, left_out: AtomicU64::new(0) }
        });
        if refused.rate.take(self.since.elapsed()) {
            return Some(refused.left_out.swap(0, Ordering::Relaxed));
        }
        refused.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// A log that is being read from its start, to see that it is whole.
#[derive(Debug)]
pub struct Verifier {
    /// Entries so far.
    pub entries: i64,
    /// The hash of the newest of them.
    pub head: String,
}

impl Default for Verifier {
    fn default() -> Self {
        Self { entries: 0, head: START.to_owned() }
    }
}

impl Verifier {
    /// Takes the next entry, with the hash that the log has for it.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence.
    pub fn next(&mut self, entry: &str, hash: &str) -> Result<(), String> {
        let due = self.entries + 1;
        let number = serde_json::from_str::<Entry>(entry)
            .map_err(|error| format!("entry {due} is not understood: {error}"))?
            .number;
        if number != due {
            return Err(format!("entry {due} is missing: the next one is {number}"));
        }
        if link(&self.head, entry) != hash {
            return Err(format!("entry {due} is not what was written, or one before it is not"));
        }
        self.entries = due;
        hash.clone_into(&mut self.head);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(length: i64) -> Vec<(String, String)> {
        let mut head = START.to_owned();
        let entry = |number| Entry {
            number,
            at: crate::now(),
            tenant: Some("t".to_owned()),
            key: None,
            role: Some(Role::Operator),
            from: Some([127, 0, 0, 1].into()),
            request: "PUT /v1/tenants/t".to_owned(),
            outcome: DONE.to_owned(),
            changed: vec![],
            left_out: 0,
        };
        let line = |number| {
            let text = serde_json::to_string(&entry(number)).unwrap();
            head = link(&head, &text);
            (text, head.clone())
        };
        (1..=length).map(line).collect()
    }

    fn verify(log: &[(String, String)]) -> Result<i64, String> {
        let mut verifier = Verifier::default();
        log.iter().try_for_each(|(entry, hash)| verifier.next(entry, hash)).map(|()| verifier.entries)
    }

    #[test]
    fn a_log_is_whole_or_says_where_it_is_not() {
        let whole = log(5);
        assert_eq!(verify(&whole), Ok(5));
        assert_eq!(verify(&[]), Ok(0));

        let mut altered = whole.clone();
        altered[2].0 = altered[2].0.replace("127.0.0.1", "127.0.0.2");
        assert!(verify(&altered).unwrap_err().contains("entry 3 is not what was written"));

        // Also with a hash of its own, because the next one is over it.
        altered[2].1 = link(&altered[1].1, &altered[2].0);
        assert!(verify(&altered).unwrap_err().contains("entry 4 is not what was written"));

        let mut short = whole.clone();
        short.remove(1);
        assert!(verify(&short).unwrap_err().contains("entry 2 is missing"));

        let mut swapped = whole;
        swapped.swap(0, 1);
        assert!(verify(&swapped).is_err());
    }

    #[test]
    fn of_a_flood_of_refusals_some_are_written_and_the_others_counted() {
        let refusals = Refusals::default();
        let written = (0..1000).filter(|_| refusals.take(Whose::Stranger).is_some()).count();
        assert!((100..200).contains(&written), "{written}");
        let left_out = refusals.of.get(&Whose::Stranger).unwrap().left_out.load(Ordering::Relaxed);
        assert_eq!(written as u64 + left_out, 1000);
        assert_eq!(
            refusals.take(Whose::Of(None)),
            Some(0),
            "who has a key is not left out for those without"
        );
    }

    #[test]
    fn a_long_request_is_cut() {
        let told = Actor::request(&http::Method::POST, &"/é".repeat(1000));
        assert_eq!(told.chars().count(), Actor::LONGEST);
    }
}
