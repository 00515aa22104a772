//! The operator's policy: what a component may import, and what its function's configuration may ask for.
//!
//! ```text
//! pattern.rs   names with `*`, and hosts
//! most.rs      the most that a configuration may ask for
//! offline.rs   the same answer without a server
//! ```
//!
//! It is looked at when something is deployed, and nowhere else: what is deployed goes on when the policy becomes
//! stricter, and the server names it in its log at the start. Without a policy all that the server's own limits allow is
//! allowed. A rule that is absent for a tenant is the defaults' one; one that is absent there too forbids nothing. A list
//! allows what is in it and nothing else, so an empty one allows nothing.

mod most;
mod offline;
mod pattern;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::live::{self, Change};
use crate::function::{Class, Device, FunctionConfig};
use crate::name::Name;
use most::Most;
pub use offline::check;
use pattern::{Hosts, Pattern};

/// The policy's document (TOML). Unknown names are refused.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Document,
    /// The document as it was read.
    text: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Document {
    /// What holds for a tenant, unless its own rules say otherwise.
    defaults: Rules,
    /// Tenants' own rules. Once read, with the defaults where they say nothing.
    tenants: BTreeMap<String, Rules>,
}

/// What a deploy may ask for. What is absent is not restricted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Rules {
    /// Interfaces that a component may import, with or without their version.
    imports: Option<Vec<Pattern>>,
    /// Models that a function may name.
    models: Option<Vec<Pattern>>,
    /// Environment variables that a function may have, by name.
    env: Option<Vec<Pattern>>,
    /// Hosts that a function may send requests to.
    egress: Option<Vec<Hosts>>,
    /// Where models may run.
    devices: Option<Vec<Device>>,
    /// How urgent inferences may be.
    classes: Option<Vec<Class>>,
    /// Whether a function may be called without a key.
    public: Option<bool>,
    /// Whether a function may load models from bytes of its own.
    allow_model_bytes: Option<bool>,
    /// Whether a component needs a signature by one of its tenant's keys.
    require_signature: Option<bool>,
    /// The most that a configuration may ask for.
    limits: Most,
}

/// A rule that a deploy does not keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Violation {
    /// The rule's name in the policy's document, such as `imports` or `limits.memory`.
    pub rule: &'static str,
    /// What was asked for: one import, one model, one value.
    pub asked: String,
    /// What the rule allows: names and patterns, or the most. Nothing, if it is empty.
    pub allowed: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, asked, allowed } = self;
        let most = if rule.starts_with("limits.") { "at most " } else { "" };
        match allowed.as_slice() {
            [] => write!(f, "{rule}: {asked} (allowed: nothing)"),
            some => write!(f, "{rule}: {asked} (allowed: {most}{})", some.join(", ")),
        }
    }
}

/// What a deploy is, so far as a policy looks at it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub config: &'a FunctionConfig,
    /// The interfaces that the component imports.
    pub imports: &'a [String],
    /// The key that signed the component.
    pub signed_by: Option<&'a str>,
}

impl Policy {
    /// Reads a policy's document.
    ///
    /// # Errors
    /// What is wrong with the file, with the name or the line of it.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("the policy {} cannot be read", file.display()))?;
        Self::parse(&text).with_context(|| format!("the policy {} is not valid", file.display()))
    }

    /// # Errors
    /// What is wrong with the document.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let Document { defaults, tenants } = toml::from_str(text)?;
        defaults.check().map_err(|reason| anyhow::anyhow!("defaults.{reason}"))?;
        for (tenant, rules) in &tenants {
            Name::tenant(tenant).map_err(|reason| anyhow::anyhow!("tenants: {reason}"))?;
            rules.check().map_err(|reason| anyhow::anyhow!("tenants.{tenant}.{reason}"))?;
        }
        let tenants = tenants.into_iter().map(|(tenant, rules)| (tenant, rules.over(&defaults))).collect();
        Ok(Self { rules: Document { defaults, tenants }, text: toml::from_str(text)? })
    }

    /// All that a tenant's deploy does not keep, in the order of the document's rules.
    pub fn violations(&self, tenant: &str, asked: Asked<'_>) -> Vec<Violation> {
        self.rules.tenants.get(tenant).unwrap_or(&self.rules.defaults).violations(asked)
    }

    /// What another document says otherwise.
    pub fn changes(&self, other: &Self) -> Vec<Change> {
        let named = |policy: &Self| json!({ "policy": policy.text });
        live::changes(&named(self), &named(other))
    }
}

impl Rules {
    /// These rules, with the defaults' where they say nothing.
    fn over(self, defaults: &Self) -> Self {
        Self {
            imports: self.imports.or_else(|| defaults.imports.clone()),
            models: self.models.or_else(|| defaults.models.clone()),
            env: self.env.or_else(|| defaults.env.clone()),
            egress: self.egress.or_else(|| defaults.egress.clone()),
            devices: self.devices.or_else(|| defaults.devices.clone()),
            classes: self.classes.or_else(|| defaults.classes.clone()),
            public: self.public.or(defaults.public),
            allow_model_bytes: self.allow_model_bytes.or(defaults.allow_model_bytes),
            require_signature: self.require_signature.or(defaults.require_signature),
            limits: self.limits.over(&defaults.limits),
        }
    }

    /// # Errors
    /// A sentence that names the rule and the pattern that can never match.
    fn check(&self) -> Result<(), String> {
        let patterns = |rule, patterns: &Option<Vec<Pattern>>, can: fn(&str) -> bool, what| match patterns
            .iter()
            .flatten()
            .find(|pattern| !can(pattern.as_str()))
        {
            Some(pattern) => Err(format!("{rule}: `{}` is no pattern for {what}", pattern.as_str())),
            None => Ok(()),
        };
        let interface =
            |text: &str| (text.contains(':') || text.contains('*')) && !text.contains(char::is_whitespace);
        let model = |text: &str| Name::model(&text.replace('*', "a")).is_ok();
        let variable = |text: &str| !text.is_empty() && !text.contains(['=', '\0']);
        patterns("imports", &self.imports, interface, "an interface, such as `wasi:http/*`")?;
        patterns("models", &self.models, model, "a model's name")?;
        patterns("env", &self.env, variable, "an environment variable's name")
    }

    fn violations(&self, Asked { config, imports, signed_by }: Asked<'_>) -> Vec<Violation> {
        let mut found = vec![];
        let mut not_in = |rule, asked: String, allowed: Option<Vec<String>>| {
            found.extend(allowed.map(|allowed| Violation { rule, asked, allowed }));
        };
        for import in imports {
            not_in(
                "imports",
                import.clone(),
                none_of(&self.imports, |pattern| pattern.allows_interface(import)),
            );
        }
        for model in &config.models {
            not_in("models", model.clone(), none_of(&self.models, |pattern| pattern.matches(model)));
        }
        for name in config.env.keys() {
            not_in("env", name.clone(), none_of(&self.env, |pattern| pattern.matches(name)));
        }
        for host in &config.egress {
            not_in("egress", host.to_string(), none_of(&self.egress, |hosts| hosts.cover(host)));
        }
        let device = word(&config.device);
        not_in("devices", device, none_of(&self.devices, |device| *device == config.device));
        let asked = config.class.unwrap_or_default();
        not_in("classes", word(&asked), none_of(&self.classes, |class| *class == asked));
        for (rule, asked, may) in [
            ("public", config.public, self.public),
            ("allow_model_bytes", config.allow_model_bytes, self.allow_model_bytes),
        ] {
            if asked && may == Some(false) {
                not_in(rule, "true".to_owned(), Some(vec!["false".to_owned()]));
            }
        }
        if self.require_signature == Some(true) && signed_by.is_none() {
            let allowed = vec!["a signature by a key of the tenant".to_owned()];
            not_in("require_signature", "no signature".to_owned(), Some(allowed));
        }
        found.extend(self.limits.violations(config));
        found
    }
}

/// What a list allows, where it is there and has nothing that is so.
fn none_of<T: Serialize>(list: &Option<Vec<T>>, is: impl Fn(&T) -> bool) -> Option<Vec<String>> {
    let list = list.as_ref().filter(|list| !list.iter().any(is))?;
    Some(list.iter().map(word).collect())
}

/// A value that is written as a string, as documents have it.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
