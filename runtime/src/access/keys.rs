//! All keys of this server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
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
    last_used: AtomicI64,
    /// What of that is kept.
    kept: AtomicI64,
}

impl Entry {
    fn principal(&self, now: SystemTime) -> Result<Principal, Wrong> {
        match self.key.state(now) {
            KeyState::Valid => Ok(self.key.principal.clone()),
            KeyState::Expired => Err(Wrong::Expired),
            KeyState::Revoked => Err(Wrong::Revoked),
        }
    }

    fn last_used(&self) -> i64 {
        self.last_used.load(Ordering::Relaxed)
    }
}

/// Keys, by their ids.
#[derive(Default)]
pub struct Keys(DashMap<Arc<str>, Arc<Entry>>);

impl Keys {
    /// Adds a key, or has it be another from now on.
    pub fn put(&self, key: Key) {
        let id: Arc<str> = key.record.id.as_str().into();
        let before = self.0.get(&id).map(|entry| (entry.last_used(), entry.kept.load(Ordering::Relaxed)));
        let (used, kept) = before.unwrap_or_default();
        self.0.insert(id, Arc::new(Entry { key, last_used: used.into(), kept: kept.into() }));
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
        let principal = entry.principal(now)?;
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        entry.last_used.store(seconds, Ordering::Relaxed);
        Ok(principal)
    }

    /// Who has the key of this id, so far as it is good now.
    ///
    /// # Errors
    /// Why it is no good.
    pub fn look(&self, id: &str) -> Result<Principal, Wrong> {
        let entry = self.0.get(id).map(|entry| Arc::clone(&entry)).ok_or(Wrong::Unknown)?;
        entry.principal(SystemTime::now())
    }

    /// Has keys have been used then, as it was kept: ids and seconds since 1970.
    pub fn restore_uses(&self, uses: Vec<(String, i64)>) {
        for (id, used) in uses {
            if let Some(entry) = self.0.get(id.as_str()) {
                entry.last_used.fetch_max(used, Ordering::Relaxed);
                entry.kept.store(used, Ordering::Relaxed);
            }
        }
    }

    /// The keys whose last use is not kept yet: ids and seconds since 1970.
    pub fn uses_to_keep(&self) -> Vec<(Arc<str>, i64)> {
        let is_new = |entry: &Entry| entry.last_used() > entry.kept.load(Ordering::Relaxed);
        let new = self.0.iter().filter(|entry| is_new(entry));
        new.map(|entry| (Arc::clone(entry.key()), entry.last_used())).collect()
    }

    /// These are kept now.
    pub fn uses_are_kept(&self, uses: &[(Arc<str>, i64)]) {
        for (id, used) in uses {
            if let Some(entry) = self.0.get(id) {
                entry.kept.fetch_max(*used, Ordering::Relaxed);
            }
        }
    }

    /// What is shown of the keys of a tenant, or of none, or of all: each with when it was last used, in seconds since
    /// 1970.
    pub fn list(&self, is_wanted: impl Fn(&Key) -> bool) -> Vec<(super::KeyRecord, Option<i64>)> {
        let mut listed: Vec<_> = self
            .0
            .iter()
            .filter(|entry| is_wanted(&entry.key))
            .map(|entry| {
                let used = entry.last_used();
                (entry.key.record.clone(), (used > 0).then_some(used))
            })
            .collect();
        listed.sort_by(|one, other| (&one.0.created, &one.0.id).cmp(&(&other.0.created, &other.0.id)));
        listed
    }

    /// Forgets a key.
    pub fn remove(&self, id: &str) {
        self.0.remove(id);
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
        let uses = keys.uses_to_keep();
        assert_eq!(uses.len(), 1);
        keys.uses_are_kept(&uses);
        assert_eq!(keys.uses_to_keep(), []);
        let again = Keys::default();
        again.put(Key::new(record.clone()).unwrap());
        again.restore_uses(vec![(record.id.clone(), uses[0].1), ("gone".to_owned(), 7)]);
        assert_eq!(again.list(|_| true), [(record.clone(), Some(uses[0].1))]);
        assert_eq!(again.uses_to_keep(), []);
        keys.put(Key::new(KeyRecord { revoked: Some(crate::now()), ..record.clone() }).unwrap());
        assert_eq!(keys.verify(token.as_str()).unwrap_err(), Wrong::Revoked);
        assert!(keys.find(&record.id, Some(&tenant)).is_some());
        assert!(keys.find(&record.id, Some(&Name::tenant("u").unwrap())).is_none());
    }
}
