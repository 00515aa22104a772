//! Which usage is looked at, in the log and in the store.

use super::record::{Outcome, Record};

/// What usage is asked for. A text that is absent is not asked for; one that is empty is what a record does not have.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub tenant: Option<String>,
    pub function: Option<String>,
    pub key: Option<String>,
    pub class: Option<String>,
    pub outcome: Option<Outcome>,
    pub device: Option<String>,
    pub model: Option<String>,
}

/// Whether a text is the one that is asked for, if one is.
pub fn is(wanted: Option<&str>, text: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == text)
}

impl Filter {
    /// Whether what was used of this device with this model is asked for.
    pub fn has_use(&self, device: &str, model: &str) -> bool {
        is(self.device.as_deref(), device) && is(self.model.as_deref(), model)
    }

    /// Whether a record is one of those that are asked for. With a device or a model, it is if it used it.
    pub fn is_met(&self, record: &Record) -> bool {
        let uses = self.device.is_none() && self.model.is_none()
            || record.uses.iter().any(|used| self.has_use(&used.device, &used.model));
        is(self.tenant.as_deref(), &record.tenant)
            && is(self.function.as_deref(), record.function.as_deref().unwrap_or_default())
            && is(self.key.as_deref(), record.key.as_deref().unwrap_or_default())
            && is(self.class.as_deref(), record.class.as_deref().unwrap_or_default())
            && self.outcome.is_none_or(|outcome| outcome == record.outcome)
            && uses
    }
}
