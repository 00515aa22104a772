//! All keys of this server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use dashmap::DashMap;

use super::key::{KeyState, parts};
use super::{Key, Principal};
use crate::name::Name;

/// Why a key is no good. Only whoever has the secret is told what became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("there is no such key")]
    Unknown,
    #[error("the key has expired")]
    Expired,
    #[error("the key has been revoked")]
    Revoked,
}

struct Entry {
    key: Key,
    /// Seconds since 1970; 0 for never.
    last_used: AtomicU64,
}

/// Keys, by their ids.
#[derive(Default)]
pub struct Keys(DashMap<Arc<str>, Arc<Entry>>);

impl Keys {
    /// Adds a key, or has it be another from now on.
    pub fn put(&self, key: Key) {
        let id: Arc<str> = key.record.id.as_str().into();
        let used = self.0.get(&id).map_or(0, |entry| entry.last_used.load(Ordering::Relaxed));
        self.0.insert(id, Arc::new(Entry { key, last_used: used.into() }));
    }

    /// Who has this key.
    ///
    /// # Errors
    /// Why it is no good.
    pub fn verify(&self, token: &str) -> Result<Principal, Wrong> {
        let (id, secret) = parts(token).ok_or(Wrong::Unknown)?;
        let entry = self.0.get(id).map(|entry| Arc::clone(&entry)).ok_or(Wrong::Unknown)?;
        if !entry.key.is(secret) {
            return Err(Wrong::Unknown);
        }
        let now = SystemTime::now();
        match entry.key.state(now) {
            KeyState::Valid => {}
            KeyState::Expired => return Err(Wrong::Expired),
            KeyState::Revoked => return Err(Wrong::Revoked),
        }
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        entry.last_used.store(seconds, Ordering::Relaxed);
        Ok(entry.key.principal.clone())
    }

    /// What is shown of the keys of a tenant, or of none, or of all: each with when it was last used since the server's
    /// start, in seconds since 1970.
    pub fn list(&self, is_wanted: impl Fn(&Key) -> bool) -> Vec<(super::KeyRecord, Option<u64>)> {
        let mut listed: Vec<_> = self
            .0
            .iter()
            .filter(|entry| is_wanted(&entry.key))
            .map(|entry| {
                let used = entry.last_used.load(Ordering::Relaxed);
                (entry.key.record.clone(), (used > 0).then_some(used))
            })
            .collect();
        listed.sort_by(|one, other| (&one.0.created, &one.0.id).cmp(&(&other.0.created, &other.0.id)));
        listed
    }

    /// The record of a key, if it is one of these.
    pub fn find(&self, id: &str, tenant: Option<&Name>) -> Option<super::KeyRecord> {
        let entry = self.0.get(id)?;
        let theirs = tenant.is_none_or(|tenant| entry.key.principal.tenant.as_ref() == Some(tenant));
        theirs.then(|| entry.key.record.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KeyRecord, Role};
    use super::*;

    #[test]
    fn a_key_says_who_has_it_and_a_wrong_one_nothing() {
        let keys = Keys::default();
        let tenant = Name::tenant("t").unwrap();
        let (key, token) = Key::make(KeyRecord::of(Role::Deployer, Some(&tenant))).unwrap();
        let record = key.record.clone();
        keys.put(key);
        assert_eq!(keys.list(|_| true), [(record.clone(), None)]);
        let principal = keys.verify(token.as_str()).unwrap();
        assert_eq!((principal.role, principal.tenant), (Role::Deployer, Some(tenant.clone())));
        assert!(keys.list(|_| true)[0].1.is_some(), "it has been used");
        let wrong = [
            "weir".to_owned(),
            String::new(),
            format!("weir_{}_", record.id),
            format!("weir_{}_{}", record.id, record.hash),
            token.as_str().replacen(&record.id, "000000000000", 1),
            format!("{}0", token.as_str()),
        ];
        for token in wrong {
            assert_eq!(keys.verify(&token).unwrap_err(), Wrong::Unknown, "{token}");
        }
        keys.put(Key::new(KeyRecord { revoked: Some(crate::now()), ..record.clone() }).unwrap());
        assert_eq!(keys.verify(token.as_str()).unwrap_err(), Wrong::Revoked);
        assert!(keys.find(&record.id, Some(&tenant)).is_some());
        assert!(keys.find(&record.id, Some(&Name::tenant("u").unwrap())).is_none());
    }
}
