//! The audit log: read in parts.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::guard::meant;
use super::problem::{Code, Problem};
use super::query::Asked;
use crate::access::Principal;
use crate::audit::Entry;
use crate::node::Node;
use crate::store::{Line, Search};

/// The query of `GET /v1/audit`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditQuery {
    /// Only what was asked by the key with this id.
    key: Option<String>,
    /// Only entries with a higher number, oldest first.
    #[schemars(range(min = 0))]
    after: Option<i64>,
    /// The most entries: 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    limit: i64,
}

impl Default for AuditQuery {
    fn default() -> Self {
        Self { key: None, after: None, limit: 100 }
    }
}

/// The most entries of one answer.
const MOST: i64 = 1000;

/// A part of the audit log, oldest first: the newest entries, or those after a number.
#[derive(Serialize, JsonSchema)]
pub struct AuditLog {
    /// The tenant whose entries these are; none if they are everybody's.
    tenant: Option<String>,
    entries: Vec<AuditLine>,
    /// The `after` of the next part, if there may be one.
    next: Option<i64>,
}

/// An entry, with its hash.
#[derive(Serialize, JsonSchema)]
struct AuditLine {
    /// The entry, byte for byte as it was hashed.
    #[schemars(with = "Entry")]
    entry: Box<RawValue>,
    /// SHA-256, in hex, over the hash before and the entry's bytes.
    hash: String,
}

/// `GET /v1/audit`
pub async fn list(
    State(node): State<Arc<Node>>,
    principal: Principal,
    headers: HeaderMap,
    Asked(AuditQuery { key, after, limit }): Asked<AuditQuery>,
) -> Result<Json<AuditLog>, Problem> {
    let invalid = |detail| Problem::new(Code::InvalidRequest, detail);
    if !(1..=MOST).contains(&limit) {
        return Err(invalid(format!("limit is {limit}; it must be 1 to {MOST}")));
    }
    if after.is_some_and(|after| after < 0) {
        return Err(invalid("after is below 0; entries are numbered from 1".to_owned()));
    }
    let tenant = meant(&principal, &headers)?.map(|tenant| tenant.to_string());
    let (tenant, newest) = (if node.access.keys().is_some() { tenant } else { None }, after.is_none());
    let search = Search { tenant, key, after: after.unwrap_or(0), limit, newest };
    let lines = node.store.audit(&search).await?;
    // A part that is full may have another after it.
    let full = i64::try_from(lines.len()).is_ok_and(|entries| entries == limit);
    let next = lines.last().filter(|_| full && !newest).map(|line| line.number);
    let shown = |Line { entry, hash, .. }| {
        let entry = RawValue::from_string(entry).map_err(|error| Problem::internal(&error.into()))?;
        Ok(AuditLine { entry, hash })
    };
    let entries = lines.into_iter().map(shown).collect::<Result<_, Problem>>()?;
    Ok(Json(AuditLog { tenant: search.tenant, entries, next }))
}
