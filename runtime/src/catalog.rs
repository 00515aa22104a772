//! What tenants have, by tenant and name.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashmap::DashMap;

/// All tenants' things of one kind. Another tenant's are found by nobody.
pub struct Catalog<T>(DashMap<Arc<str>, BTreeMap<Arc<str>, Arc<T>>>);

impl<T> Default for Catalog<T> {
    fn default() -> Self {
        Self(DashMap::new())
    }
}

impl<T> Catalog<T> {
    pub fn find(&self, tenant: &str, name: &str) -> Option<Arc<T>> {
        self.0.get(tenant)?.get(name).cloned()
    }

    /// Adds a thing, in place of the one of that name.
    pub fn put(&self, tenant: &str, name: &str, thing: Arc<T>) {
        self.0.entry(tenant.into()).or_default().insert(name.into(), thing);
    }

    pub fn remove(&self, tenant: &str, name: &str) {
        if let Some(mut theirs) = self.0.get_mut(tenant) {
            theirs.remove(name);
        }
    }

    /// A tenant's things, by name.
    pub fn of(&self, tenant: &str) -> Vec<Arc<T>> {
        self.0.get(tenant).map(|theirs| theirs.values().cloned().collect()).unwrap_or_default()
    }

    /// Any thing that is so.
    pub fn first(&self, mut is: impl FnMut(&T) -> bool) -> Option<Arc<T>> {
        self.0.iter().find_map(|theirs| theirs.values().find(|thing| is(thing)).cloned())
    }

    pub fn any(&self, is: impl FnMut(&T) -> bool) -> bool {
        self.first(is).is_some()
    }

    /// How many things all tenants have.
    pub fn count(&self) -> usize {
        self.0.iter().map(|theirs| theirs.len()).sum()
    }

    /// Tenants that have things.
    pub fn tenants(&self) -> Vec<Arc<str>> {
        let some = self.0.iter().filter(|theirs| !theirs.is_empty());
        some.map(|theirs| Arc::clone(theirs.key())).collect()
    }

    /// Forgets all, and gives them.
    pub fn take(&self) -> Vec<Arc<T>> {
        let mut all = Vec::new();
        self.0.retain(|_, theirs| {
            all.extend(std::mem::take(theirs).into_values());
            false
        });
        all
    }
}
