//! A change: definitions, and the line of the audit log that tells of them, in one transaction. There is no other way to
//! change a definition, so that nothing changes without a line.

use sqlx::{AssertSqlSafe, Row};

use super::database::{self, Connection, Pool, Transaction};
use super::{Record, Store, StoreError};
use crate::audit::{self, Actor, Changed, Entry};

/// A change that is being made. Dropped before it is committed, it leaves nothing.
pub struct Change {
    transaction: Transaction,
    /// Whose definitions they are, where they are a tenant's.
    tenant: Option<String>,
    changed: Vec<Changed>,
}

/// An entry of the audit log as it is kept.
#[derive(Debug)]
pub struct Line {
    pub number: i64,
    /// The entry's JSON, as it is hashed.
    pub entry: String,
    /// SHA-256 in hex; see [`audit::link`].
    pub hash: String,
}

/// What is looked for in the audit log.
#[derive(Debug, Default)]
pub struct Search {
    /// Whose things; all if none.
    pub tenant: Option<String>,
    /// By which key; by any or none if none.
    pub key: Option<String>,
    /// Only entries with a higher number.
    pub after: i64,
    /// The most entries.
    pub limit: i64,
    /// The newest of them, and not the oldest. They come oldest first all the same.
    pub newest: bool,
}

impl Store {
    /// Begins a change. Others wait until it has ended.
    ///
    /// # Errors
    /// When the disk does not take changes now.
    pub async fn change(&self) -> Result<Change, StoreError> {
        Change::begin(&self.database).await
    }

    /// Tells of a request that was refused; `left_out` more were, and are not told of.
    ///
    /// # Errors
    /// When the disk cannot take it.
    pub async fn refused(&self, by: &Actor, outcome: &str, left_out: u64) -> Result<(), StoreError> {
        self.tell(by, outcome, vec![], left_out).await
    }

    /// Tells of a change of what is kept elsewhere.
    ///
    /// # Errors
    /// When the disk cannot take it.
    pub async fn told(&self, by: &Actor, changed: Vec<Changed>) -> Result<(), StoreError> {
        self.tell(by, audit::DONE, changed, 0).await
    }

    /// Writes an entry that goes with no change of a definition.
    async fn tell(
        &self,
        by: &Actor,
        outcome: &str,
        changed: Vec<Changed>,
        left_out: u64,
    ) -> Result<(), StoreError> {
        let mut transaction = database::begin(&self.database).await?;
        append(&mut transaction, by, outcome, changed, left_out).await?;
        Ok(transaction.commit().await?)
    }

    /// A part of the audit log, oldest first.
    ///
    /// # Errors
    /// When the disk cannot give it, or an entry is not what was written.
    pub async fn audit(&self, search: &Search) -> Result<Vec<Line>, StoreError> {
        let order = if search.newest { "DESC" } else { "ASC" };
        let mut query = "SELECT number, tenant, key_id, entry, hash FROM audit WHERE number > $1".to_owned();
        let narrowed = [("tenant", &search.tenant), ("key_id", &search.key)];
        let narrowed: Vec<_> = narrowed.into_iter().filter_map(|(by, is)| Some((by, is.as_ref()?))).collect();
        for (number, (by, _)) in narrowed.iter().enumerate() {
            query += &format!(" AND {by} = ${}", number + 2);
        }
        query += &format!(" ORDER BY number {order} LIMIT ${}", narrowed.len() + 2);
        let mut rows = sqlx::query(AssertSqlSafe(query)).bind(search.after);
        for (_, is) in narrowed {
            rows = rows.bind(is);
        }
        let rows = rows.bind(search.limit).fetch_all(&self.database).await?;
        let mut lines = Vec::with_capacity(rows.len());
        for row in rows {
            let line = Line {
                number: row.try_get("number")?,
                entry: row.try_get("entry")?,
                hash: row.try_get("hash")?,
            };
            let (tenant, key): (Option<String>, Option<String>) =
                (row.try_get("tenant")?, row.try_get("key_id")?);
            let agrees = serde_json::from_str::<Entry>(&line.entry)
                .is_ok_and(|entry| entry.number == line.number && entry.tenant == tenant && entry.key == key);
            if !agrees {
                return Err(StoreError::Other(format!(
                    "entry {} of the audit log is not what was written",
                    line.number
                )));
            }
            lines.push(line);
        }
        if search.newest {
            lines.reverse();
        }
        Ok(lines)
    }
}

impl Change {
    pub(super) async fn begin(pool: &Pool) -> Result<Self, StoreError> {
        Ok(Self { transaction: database::begin(pool).await?, tenant: None, changed: Vec::new() })
    }

    /// Writes a definition, in place of the one of that name, and gives its version.
    ///
    /// # Errors
    /// When the disk cannot take it.
    pub async fn put<T: Record>(&mut self, record: &T) -> Result<i64, StoreError> {
        let json = serde_json::to_string(record).map_err(|error| StoreError::Other(error.to_string()))?;
        let (tenant, name) = (record.tenant(), record.name());
        let before = self.before::<T>(tenant, name).await?;
        let version = super::index::put(&mut self.transaction, T::KIND, tenant, name, &json).await?;
        self.note::<T>(tenant, name, before, Some(&json));
        Ok(version)
    }

    /// Removes a definition; none is fine.
    ///
    /// # Errors
    /// When the disk refuses.
    pub async fn remove<T: Record>(&mut self, tenant: &str, name: &str) -> Result<(), StoreError> {
        let before = self.before::<T>(tenant, name).await?;
        let query = format!("DELETE FROM \"{}\" WHERE tenant = $1 AND name = $2", T::KIND);
        sqlx::query(AssertSqlSafe(query)).bind(tenant).bind(name).execute(&mut *self.transaction).await?;
        self.note::<T>(tenant, name, before, None);
        Ok(())
    }

    /// Makes it so, and tells who asked for it. On disk when it returns.
    ///
    /// # Errors
    /// When the disk cannot take it; nothing has changed then.
    pub async fn commit(mut self, by: &Actor) -> Result<(), StoreError> {
        let by = Actor { tenant: self.tenant.or_else(|| by.tenant.clone()), ..by.clone() };
        append(&mut self.transaction, &by, audit::DONE, self.changed, 0).await?;
        Ok(self.transaction.commit().await?)
    }

    async fn before<T: Record>(&mut self, tenant: &str, name: &str) -> Result<Option<String>, StoreError> {
        let query = format!("SELECT record FROM \"{}\" WHERE tenant = $1 AND name = $2", T::KIND);
        let record = sqlx::query_scalar(AssertSqlSafe(query)).bind(tenant).bind(name);
        Ok(record.fetch_optional(&mut *self.transaction).await?)
    }

    fn note<T: Record>(&mut self, tenant: &str, name: &str, before: Option<String>, after: Option<&str>) {
        if tenant != weir_gpu::SYSTEM {
            self.tenant = Some(tenant.to_owned());
        }
        self.changed.push(Changed {
            kind: T::KIND.to_owned(),
            name: name.to_owned(),
            before: before.as_deref().map(audit::digest),
            after: after.map(audit::digest),
        });
    }
}

/// Writes the next entry of the audit log.
async fn append(
    transaction: &mut Connection,
    by: &Actor,
    outcome: &str,
    changed: Vec<Changed>,
    left_out: u64,
) -> Result<(), StoreError> {
    let newest = sqlx::query("SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1");
    let (number, before) = match newest.fetch_optional(&mut *transaction).await? {
        Some(row) => (row.try_get::<i64, _>("number")?, row.try_get("hash")?),
        None => (0, audit::START.to_owned()),
    };
    let entry = Entry {
        number: number + 1,
        at: crate::now(),
        tenant: by.tenant.clone(),
        key: by.key.clone(),
        role: by.role,
        from: by.from,
        request: by.request.clone(),
        outcome: outcome.to_owned(),
        changed,
        left_out,
    };
    let text = serde_json::to_string(&entry).map_err(|error| StoreError::Other(error.to_string()))?;
    let hash = audit::link(&before, &text);
    let write = "INSERT INTO audit (number, tenant, key_id, entry, hash) VALUES ($1, $2, $3, $4, $5)";
    sqlx::query(write)
        .bind(entry.number)
        .bind(entry.tenant)
        .bind(entry.key)
        .bind(text)
        .bind(hash)
        .execute(transaction)
        .await?;
    Ok(())
}
