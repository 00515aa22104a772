//! What tenants have of what the server keeps and runs, and whether they may have more.
//!
//! What a tenant has is counted when it asks for more. A quota that is lowered below that takes nothing away.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::Node;
use crate::access::{Key, KeyRecord};
use crate::function::FunctionConfig;
use crate::http::problem::{Code, Problem};
use crate::limits::{Exceeded, Limit};
use crate::meter::money::Amount;
use crate::meter::money::budget::Spent;
use crate::policy::word;
use crate::store::Received;
use crate::units::Size;

/// What a tenant uses now of what it may.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Used {
    pub functions: u64,
    pub models: u64,
    /// Keys, those that have ended included.
    pub keys: u64,
    /// Bytes of its components and models; the same bytes are counted once.
    pub stored_bytes: u64,
    /// Calls of its functions that run.
    pub running_calls: u32,
    /// Calls of its functions that wait for their turn.
    pub queued_calls: u32,
    /// What it has spent in this month, in milliseconds of the devices' time; null for one that has no budget.
    pub budget: Option<u64>,
    /// What it has spent in this month, in the currency of its rate card, not rounded; null for one that has no budget.
    pub spend: Option<Amount>,
}

fn count<T>(things: &[T]) -> u64 {
    u64::try_from(things.len()).unwrap_or(u64::MAX)
}

impl Node {
    /// What a tenant uses.
    pub fn used(&self, tenant: &str) -> Used {
        let (running_calls, queued_calls) = self.gates.of(tenant).used();
        let spent = self.budgets.spent(tenant, self.clock());
        Used {
            functions: count(&self.functions.of(tenant)),
            models: count(&self.models.own_of(tenant)),
            keys: count(&self.keys_of(tenant)),
            stored_bytes: self.stored(tenant, "").values().sum(),
            running_calls,
            queued_calls,
            budget: spent.as_ref().map(Spent::millis),
            spend: spent.map(|spent| spent.money),
        }
    }

    /// The bytes of a tenant's components and models by digest, without those of one model.
    fn stored(&self, tenant: &str, but: &str) -> HashMap<String, u64> {
        let functions = self.functions.of(tenant);
        let revisions = functions.iter().flat_map(|function| function.revisions());
        let components = revisions.map(|revision| (revision.digest.to_string(), revision.bytes));
        let models = self.models.own_of(tenant).into_iter().filter(|model| model.record.name != but);
        components.chain(models.map(|model| (model.record.digest.clone(), model.record.bytes))).collect()
    }

    /// Whether a tenant may have this revision, too.
    ///
    /// # Errors
    /// The class that it asks for, or the quota that it would be over.
    pub(super) fn room_for_revision(
        &self,
        tenant: &str,
        name: &str,
        config: &FunctionConfig,
        component: &Received,
    ) -> Result<(), Problem> {
        let (share, _) = self.share(tenant);
        if let Some(class) = config.class.filter(|class| *class < share.class) {
            let detail = format!(
                "class is {}; the most urgent of this tenant is {}",
                word(&class),
                word(&share.class)
            );
            return Err(Problem::new(Code::InvalidConfig, detail));
        }
        if self.functions.find(tenant, name).is_none() {
            let have = count(&self.functions.of(tenant));
            self.within(Limit::Functions, have, 1, share.max_functions.map(u64::from), |n| n.to_string())?;
        }
        self.room_for_bytes(share.stored_bytes, self.stored(tenant, ""), component)
    }

    /// Whether a tenant may have this model, too, in place of the one of its name.
    ///
    /// # Errors
    /// The quota that it would be over.
    pub(super) fn room_for_model(&self, tenant: &str, name: &str, model: &Received) -> Result<(), Problem> {
        let (share, _) = self.share(tenant);
        if self.models.own(tenant, name).is_none() {
            let have = count(&self.models.own_of(tenant));
            self.within(Limit::Models, have, 1, share.max_models.map(u64::from), |n| n.to_string())?;
        }
        self.room_for_bytes(share.stored_bytes, self.stored(tenant, name), model)
    }

    fn keys_of(&self, tenant: &str) -> Vec<KeyRecord> {
        let theirs = |key: &Key| key.record.tenant.as_deref() == Some(tenant);
        let keys = self.access.keys().map(|keys| keys.list(theirs)).unwrap_or_default();
        keys.into_iter().map(|(record, _)| record).collect()
    }

    /// The key of a tenant that makes way for one more, if one must: that which ended first.
    ///
    /// # Errors
    /// When it has as many as it may, and none has ended.
    pub(super) fn room_for_key(&self, tenant: &str) -> Result<Option<KeyRecord>, Problem> {
        let most = u64::from(self.share(tenant).0.max_keys);
        let have = self.keys_of(tenant);
        let room = |have| self.within(Limit::Keys, have, 1, Some(most), |n| n.to_string());
        let have_many = count(&have);
        if have_many < most {
            return Ok(None);
        }
        let ended = have.into_iter().filter(|record| record.ended().is_some());
        let first = ended.min_by(|one, other| one.ended().cmp(&other.ended()));
        // Where the quota was lowered, one that makes way is not enough.
        match first.filter(|_| have_many == most) {
            Some(first) => Ok(Some(first)),
            None => room(have_many).map(|()| None),
        }
    }

    fn room_for_bytes(
        &self,
        most: Option<Size>,
        stored: HashMap<String, u64>,
        more: &Received,
    ) -> Result<(), Problem> {
        if stored.contains_key(&more.digest) {
            return Ok(());
        }
        let size = |bytes| Size::bytes(bytes).to_string();
        self.within(Limit::StoredBytes, stored.values().sum(), more.bytes, most.map(Size::as_u64), size)
    }

    fn within(
        &self,
        limit: Limit,
        used: u64,
        more: u64,
        most: Option<u64>,
        show: impl Fn(u64) -> String,
    ) -> Result<(), Problem> {
        let Some(most) = most.filter(|most| used.saturating_add(more) > *most) else { return Ok(()) };
        self.telemetry.limit(limit);
        let field = limit.field();
        let (more, used, most) = (show(more), show(used), show(most));
        Err(Exceeded::new(limit, format!("{field}: this is {more} more; {used} of {most} are used")).into())
    }

    /// Says in the log if what is reserved for all tenants together is more than there is: what was set may be older than the
    /// settings.
    pub(super) fn check_floors(&self) {
        if let Err(reason) = self.floors_fit("", 0) {
            tracing::error!(reason, "not all of what is reserved can be there at one time");
        }
    }

    /// Whether all floors are there at one time, with this one in place of what the tenant has.
    ///
    /// # Errors
    /// A sentence with the numbers.
    pub(super) fn floors_fit(&self, tenant: &str, floor: u32) -> Result<(), String> {
        let others = self.tenants().into_iter().filter(|other| **other != *tenant);
        let others: u64 = others.map(|other| u64::from(self.share(&other).0.reserved_sandboxes)).sum();
        let all = self.settings().sandbox.sandboxes.get();
        if others.saturating_add(floor.into()) <= all.into() {
            return Ok(());
        }
        Err(format!(
            "reserved_sandboxes is {floor}, and {others} are reserved for other tenants; the machine has {all} \
             (sandbox.sandboxes)"
        ))
    }
}
