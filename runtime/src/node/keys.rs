//! Keys: made, kept, rotated, revoked.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use super::Node;
use crate::access::{Key, KeyRecord, Role, Token};
use crate::audit::Actor;
use crate::config::Config;
use crate::http::problem::{Code, Problem};
use crate::name::Name;
use crate::store::Record;

/// The file with the operator's key that the server has made, in the data directory.
const FIRST_KEY: &str = "operator.key";

/// How long the last operator's key works at least beside the one that takes its place.
const LAST_OVERLAP: Duration = Duration::from_secs(60);

impl Node {
    /// Reads the keys, and makes one for the operator if no operator has one, or if it is told to.
    pub(super) async fn restore_keys(&self, config: &Config) -> anyhow::Result<()> {
        let Some(keys) = self.access.keys() else { return Ok(()) };
        // One that cannot be read is named in the log, and opens nothing.
        let (records, _) = self.key_index.all().await?;
        let mut operators = 0;
        for record in records {
            operators += usize::from(record.role == Role::Operator && record.revoked.is_none());
            let id = record.id.clone();
            match Key::new(record) {
                Ok(key) => keys.put(key),
                Err(error) => tracing::error!(id, %error, "a key cannot be restored"),
            }
        }
        keys.restore_uses(self.store.key_uses().await?);
        if operators == 0 || config.new_operator_key {
            let label = if operators == 0 { "first" } else { "made at a start" }.to_owned();
            let record = KeyRecord { label, ..KeyRecord::of(Role::Operator, None) };
            let (key, token) = Key::make(record)?;
            let path = config.data_dir.join(FIRST_KEY);
            write_secret(&path, token.as_str())
                .with_context(|| format!("the operator's key cannot be written to {}", path.display()))?;
            let mut change = self.store.change().await?;
            change.put(&key.record).await?;
            change.commit(&Actor::server("an operator's key, made at the start")).await?;
            keys.put(key);
            tracing::info!(path = %path.display(), "an operator's key is in this file now");
        }
        Ok(())
    }

    /// Keeps when keys were last used. What cannot be kept now is kept the next time.
    pub async fn keep_key_uses(&self) {
        let Some(keys) = self.access.keys() else { return };
        let uses = keys.uses_to_keep();
        if uses.is_empty() {
            return;
        }
        match self.store.keep_key_uses(&uses).await {
            Ok(()) => keys.uses_are_kept(&uses),
            Err(error) => tracing::warn!(%error, "when keys were last used is not kept"),
        }
    }

    /// Makes a key, and keeps what is to be kept of it.
    ///
    /// # Errors
    /// When its tenant is not there, or the disk cannot take it.
    pub async fn make_key(&self, record: KeyRecord, by: &Actor) -> Result<(KeyRecord, Token), Problem> {
        let _change = self.change_by(by).await?;
        if let Some(tenant) = &record.tenant
            && !self.has_tenant(tenant)
        {
            return Err(Problem::no_tenant(tenant));
        }
        let (key, token) = Key::make(record).map_err(|error| Problem::internal(&error))?;
        let record = key.record.clone();
        let gone = self.gives_way(&record)?;
        self.keep_keys([key], gone, by).await?;
        Ok((record, token))
    }

    /// Makes a key like this one, which itself ends after `overlap`.
    ///
    /// # Errors
    /// When there is none, or it is no good any more, or the disk cannot take it.
    pub async fn rotate_key(
        &self,
        id: &str,
        tenant: Option<&Name>,
        overlap: Duration,
        by: &Actor,
    ) -> Result<(KeyRecord, Token), Problem> {
        let _change = self.change_by(by).await?;
        let mut old = self.key_record(id, tenant)?;
        if let Some(ended) = old.ended() {
            let how = if old.revoked.is_some() { "been revoked" } else { "expired" };
            return Err(Problem::new(Code::Conflict, format!("key `{id}` has {how}: {ended}; make another")));
        }
        if overlap < LAST_OVERLAP && self.is_last_operator(&old) {
            let least = humantime::format_duration(LAST_OVERLAP);
            let detail = format!(
                "`{id}` is the last operator's key that does not expire, and nobody could come in if the answer were lost: \
                 the overlap must be {least} at least"
            );
            return Err(Problem::new(Code::Conflict, detail));
        }
        let new = KeyRecord {
            created: crate::now(),
            created_by: by.key.clone(),
            expires: old.expires.clone(),
            ..old.clone()
        };
        let (key, token) = Key::make(new).map_err(|error| Problem::internal(&error))?;
        let record = key.record.clone();
        old.expire_in(overlap);
        let old = Key::new(old).map_err(|error| Problem::internal(&error))?;
        let gone = self.gives_way(&record)?;
        self.keep_keys([key, old], gone, by).await?;
        Ok((record, token))
    }

    /// The key that makes way for a new one.
    fn gives_way(&self, new: &KeyRecord) -> Result<Option<KeyRecord>, Problem> {
        new.tenant.as_deref().map_or(Ok(None), |tenant| self.room_for_key(tenant))
    }

    /// Revokes a key, at once and for good. One that has been revoked stays so.
    ///
    /// # Errors
    /// When there is none, when it is the last one by which an operator could come in, or when the disk cannot take it.
    pub async fn revoke_key(&self, id: &str, tenant: Option<&Name>, by: &Actor) -> Result<(), Problem> {
        let _change = self.change_by(by).await?;
        let record = self.key_record(id, tenant)?;
        if record.revoked.is_some() {
            return Ok(());
        }
        if self.is_last_operator(&record) {
            let detail =
                format!("`{id}` is the last operator's key that does not expire; make another one first");
            return Err(Problem::new(Code::Conflict, detail));
        }
        let record = KeyRecord { revoked: Some(crate::now()), ..record };
        let key = Key::new(record).map_err(|error| Problem::internal(&error))?;
        self.keep_keys([key], None, by).await
    }

    /// Whether no operator could come in for good without this key.
    fn is_last_operator(&self, record: &KeyRecord) -> bool {
        let others = |key: &Key| {
            let other = &key.record;
            let lasts = other.revoked.is_none() && other.expires.is_none();
            other.role == Role::Operator && other.id != record.id && lasts
        };
        record.role == Role::Operator && self.access.keys().is_some_and(|keys| keys.list(others).is_empty())
    }

    /// A key of a tenant, or of anyone.
    fn key_record(&self, id: &str, tenant: Option<&Name>) -> Result<KeyRecord, Problem> {
        let found = self.access.keys().and_then(|keys| keys.find(id, tenant));
        found.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no key `{id}`")))
    }

    async fn keep_keys<const N: usize>(
        &self,
        changed: [Key; N],
        gone: Option<KeyRecord>,
        by: &Actor,
    ) -> Result<(), Problem> {
        let mut change = self.store.change().await?;
        if let Some(gone) = &gone {
            change.remove::<KeyRecord>(gone.tenant(), gone.name()).await?;
        }
        for key in &changed {
            change.put(&key.record).await?;
        }
        change.commit(by).await?;
        if let Some(keys) = self.access.keys() {
            gone.into_iter().for_each(|gone| keys.remove(&gone.id));
            changed.into_iter().for_each(|key| keys.put(key));
        }
        Ok(())
    }
}

/// Writes a file that only its owner can read, in place of one that is there.
fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}
