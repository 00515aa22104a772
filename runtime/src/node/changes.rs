//! Changes: one at a time, by whom they may be made, each with its line in the audit log.

use tokio::sync::MutexGuard;

use super::Node;
use crate::access::Principal;
use crate::audit::{Actor, Whose};
use crate::http::problem::{Code, Problem};
use crate::store::Record;

impl Node {
    /// Begins a change; others wait until the guard is dropped. Who makes it is looked at here again: a key may have ended,
    /// and a tenant been suspended, since the head of the request came.
    ///
    /// # Errors
    /// When the key is no good any more, or its tenant is suspended.
    pub(super) async fn change_by(&self, by: &Actor) -> Result<MutexGuard<'_, ()>, Problem> {
        let change = self.changes.lock().await;
        self.may_go_on(by.key.as_deref())?;
        Ok(change)
    }

    /// That whoever came in with the key of this id, or with none, is let in still.
    ///
    /// # Errors
    /// When the key is no good any more, or its tenant is suspended.
    pub fn may_go_on(&self, key: Option<&str>) -> Result<(), Problem> {
        match self.access.keys().zip(key) {
            Some((keys, id)) => self.serves(&keys.look(id)?),
            None => Ok(()),
        }
    }

    /// That somebody's tenant is not suspended.
    ///
    /// # Errors
    /// When it is.
    pub fn serves(&self, principal: &Principal) -> Result<(), Problem> {
        match &principal.tenant {
            Some(tenant) if !self.is_active(tenant) => {
                Err(Problem::new(Code::TenantSuspended, format!("tenant `{tenant}` is suspended")))
            }
            _ => Ok(()),
        }
    }

    /// Keeps a definition, as a change of its own; gives its version.
    pub(super) async fn write<T: Record>(&self, record: &T, by: &Actor) -> Result<i64, Problem> {
        let mut change = self.store.change().await?;
        let version = change.put(record).await?;
        change.commit(by).await?;
        Ok(version)
    }

    /// Forgets a definition, as a change of its own.
    pub(super) async fn erase<T: Record>(&self, tenant: &str, name: &str, by: &Actor) -> Result<(), Problem> {
        let mut change = self.store.change().await?;
        change.remove::<T>(tenant, name).await?;
        Ok(change.commit(by).await?)
    }

    /// Tells the audit log of a request that was refused.
    pub async fn refused(&self, by: &Actor, code: Code) {
        let looked = self.access.keys().zip(by.key.as_ref()).and_then(|(keys, id)| keys.look(id).ok());
        let whose = looked.map_or(Whose::Stranger, |principal| Whose::Of(principal.tenant));
        let Some(left_out) = self.refusals.take(whose) else { return };
        if let Err(error) = self.store.refused(by, code.name(), left_out).await {
            tracing::error!(%error, request = by.request, code = code.name(), "a refusal is not in the audit log");
        }
    }
}
