//! Keys: list, make, rotate, revoke. Those of a tenant are its admins' matter, the others the operator's.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::guard::{forbidden, meant};
use super::idempotency::Claim;
use super::problem::{Code, Problem};
use super::query::{Asked, PageLimit};
use super::{KeyId, upload, whole};
use crate::access::{KeyRecord, Keys, Principal, Role, Token};
use crate::audit::Actor;
use crate::name::Name;
use crate::node::Node;
use crate::schema::{FunctionText, KeyText, MomentText, SpanText, TenantText};
use crate::units::span;

/// The longest label, and the most functions that a key may name.
const MOST: usize = 100;

/// A key that is wanted.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewKey")]
pub struct Wanted {
    role: Role,
    /// What to call it.
    #[serde(default)]
    #[schemars(length(max = 100))]
    label: String,
    /// The only functions that it may call; only for callers. Absent or null for all.
    #[serde(default)]
    #[schemars(with = "Option<Vec<FunctionText>>", length(min = 1, max = 100))]
    functions: Option<Vec<String>>,
    /// How long it works; for good when absent.
    #[serde(default, with = "span::optional")]
    #[schemars(with = "Option<SpanText>")]
    expires_in: Option<Duration>,
}

/// How a key makes way for a new one.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rotation {
    /// How long the key still works beside the one that takes its place.
    #[serde(with = "span")]
    #[schemars(with = "SpanText")]
    overlap: Duration,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { overlap: Duration::from_secs(3600) }
    }
}

fn keys(node: &Node) -> Result<&Keys, Problem> {
    node.access.keys().ok_or_else(|| {
        Problem::new(Code::NotFound, "this server asks nobody for a key: it was started with --dev")
    })
}

/// A key, without its secret.
#[derive(Clone, Serialize, JsonSchema)]
#[schemars(rename = "Key")]
pub struct KeyView {
    #[schemars(with = "KeyText")]
    id: String,
    /// What the key begins with.
    prefix: String,
    role: Role,
    /// Null for what concerns all tenants.
    #[schemars(with = "Option<TenantText>")]
    tenant: Option<String>,
    label: String,
    /// The only functions that it may call; null for all.
    #[schemars(with = "Option<Vec<FunctionText>>")]
    functions: Option<Vec<String>>,
    #[schemars(with = "MomentText")]
    created: String,
    /// The id of the key that it was made with; null for the first, which the server made.
    #[schemars(with = "Option<KeyText>")]
    created_by: Option<String>,
    /// Null for one that does not end.
    #[schemars(with = "Option<MomentText>")]
    expires: Option<String>,
    /// Null for one that is not.
    #[schemars(with = "Option<MomentText>")]
    revoked: Option<String>,
    /// Absent where it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<MomentText>")]
    last_used: Option<String>,
}

/// A key that was just made.
#[derive(Serialize, JsonSchema)]
pub struct MadeKey {
    #[serde(flatten)]
    about: KeyView,
    /// The key. It is shown once, and not kept.
    key: String,
}

/// A page of keys, oldest first.
#[derive(Serialize, JsonSchema)]
pub struct KeyList {
    keys: Vec<KeyView>,
    /// What to ask for as `after` to have the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The query of `GET /v1/keys`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyQuery {
    #[serde(default)]
    #[schemars(with = "Option<PageLimit>")]
    limit: PageLimit,
    /// `next` of the page before.
    after: Option<String>,
    /// Only those of this role.
    role: Option<Role>,
    /// Only those that have been revoked, or have not.
    revoked: Option<bool>,
}

fn view(record: KeyRecord, used: Option<i64>) -> KeyView {
    let moment = |seconds: i64| {
        humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs()))
            .to_string()
    };
    KeyView {
        prefix: format!("weir_{}_", record.id),
        id: record.id,
        role: record.role,
        tenant: record.tenant,
        label: record.label,
        functions: record.functions,
        created: record.created,
        created_by: record.created_by,
        expires: record.expires,
        revoked: record.revoked,
        last_used: used.map(moment),
    }
}

/// `GET /v1/keys`
pub async fn list(
    State(node): State<Arc<Node>>,
    principal: Principal,
    headers: HeaderMap,
    Asked(query): Asked<KeyQuery>,
) -> Result<Json<KeyList>, Problem> {
    let tenant = meant(&principal, &headers)?;
    let listed = keys(&node)?.list(|key| {
        tenant.as_ref().is_none_or(|tenant| key.principal.tenant.as_ref() == Some(tenant))
            && query.role.is_none_or(|role| key.record.role == role)
            && query.revoked.is_none_or(|revoked| key.record.revoked.is_some() == revoked)
    });
    // In the order that they are listed in.
    let place = |(record, _): &(KeyRecord, Option<i64>)| format!("{}_{}", record.created, record.id);
    let (page, next) = query.limit.page(listed, query.after, place);
    Ok(Json(KeyList { keys: page.into_iter().map(|(record, used)| view(record, used)).collect(), next }))
}

/// `POST /v1/keys`
pub async fn make(State(node): State<Arc<Node>>, by: Actor, request: Request) -> Result<Response, Problem> {
    let (principal, tenant) = asker(&request)?;
    keys(&node)?;
    let headers = request.headers().clone();
    let wanted: Wanted = upload::json(&node, request).await?;
    let invalid = |detail: String| Problem::new(Code::InvalidConfig, detail);
    if !wanted.role.belongs(tenant.is_some()) {
        let role = wanted.role.name();
        return Err(invalid(match tenant {
            Some(_) => format!("role: a key of role `{role}` is of no tenant"),
            None => {
                format!("role: a key of role `{role}` is of a tenant: name it in the header `weir-tenant`")
            }
        }));
    }
    if principal.tenant.is_some() && wanted.role == Role::Operator {
        return Err(forbidden(&principal));
    }
    if wanted.label.chars().count() > MOST {
        return Err(invalid(format!("label: the most is {MOST} characters")));
    }
    if wanted.expires_in.is_some_and(|time| time.is_zero()) {
        return Err(invalid("expires_in: it must be more than 0".to_owned()));
    }
    if let Some(functions) = &wanted.functions {
        if wanted.role != Role::Caller {
            return Err(invalid("functions: only a key of role `caller` is for some functions".to_owned()));
        }
        if functions.is_empty() || functions.len() > MOST {
            return Err(invalid(format!("functions: name 1 to {MOST}, or leave it out for all")));
        }
        for function in functions {
            Name::function(function).map_err(|reason| invalid(format!("functions: {reason}")))?;
        }
    }
    let claim = node.once.claim(&principal, &headers, &("make", tenant.as_deref(), &wanted))?;
    let mut record = KeyRecord {
        label: wanted.label,
        functions: wanted.functions,
        created_by: principal.key.as_deref().map(str::to_owned),
        ..KeyRecord::of(wanted.role, tenant.as_ref())
    };
    if let Some(time) = wanted.expires_in {
        record.expire_in(time);
    }
    let made = async move {
        let made = node.make_key(record, &by).await;
        note(claim, &made);
        made
    };
    let (record, token) = whole(made).await?;
    Ok(shown_once(record, token.as_str()))
}

/// `POST /v1/keys/{id}/rotate`
pub async fn rotate(
    State(node): State<Arc<Node>>,
    KeyId(id): KeyId,
    by: Actor,
    request: Request,
) -> Result<Response, Problem> {
    let (principal, tenant) = asker(&request)?;
    keys(&node)?;
    let headers = request.headers().clone();
    let rotation: Rotation = upload::json(&node, request).await?;
    let claim = node.once.claim(&principal, &headers, &("rotate", &id, tenant.as_deref(), &rotation))?;
    let rotated = async move {
        let made = node.rotate_key(&id, tenant.as_ref(), rotation.overlap, &by).await;
        note(claim, &made);
        made
    };
    let (record, token) = whole(rotated).await?;
    Ok(shown_once(record, token.as_str()))
}

/// `DELETE /v1/keys/{id}`
pub async fn revoke(
    State(node): State<Arc<Node>>,
    KeyId(id): KeyId,
    by: Actor,
    request: Request,
) -> Result<StatusCode, Problem> {
    let (_, tenant) = asker(&request)?;
    keys(&node)?;
    whole(async move { node.revoke_key(&id, tenant.as_ref(), &by).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Remembers that a key was made, if it is to be made once.
fn note(claim: Option<Claim>, made: &Result<(KeyRecord, Token), Problem>) {
    if let (Some(claim), Ok((record, _))) = (claim, made) {
        claim.done(&record.id);
    }
}

/// Who asks, and for which tenant.
fn asker(request: &Request) -> Result<(Principal, Option<Name>), Problem> {
    let principal = request.extensions().get::<Principal>().cloned().ok_or_else(super::guard::no_key)?;
    let tenant = meant(&principal, request.headers())?;
    Ok((principal, tenant))
}

fn shown_once(record: KeyRecord, token: &str) -> Response {
    let made = MadeKey { about: view(record, None), key: token.to_owned() };
    (StatusCode::CREATED, Json(made)).into_response()
}
