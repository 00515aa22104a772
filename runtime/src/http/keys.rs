//! Keys: list, make, rotate, revoke. Those of a tenant are its admins' matter, the others the operator's.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::guard::{forbidden, meant};
use super::problem::{Code, Problem};
use super::{upload, whole};
use crate::access::{KeyRecord, Keys, Principal, Role};
use crate::audit::Actor;
use crate::name::Name;
use crate::node::Node;
use crate::units::span;

/// The longest label, and the most functions that a key may name.
const MOST: usize = 100;

/// What `POST /v1/keys` is told.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    role: Role,
    #[serde(default)]
    label: String,
    #[serde(default)]
    functions: Option<Vec<String>>,
    #[serde(default, with = "span::optional")]
    expires_in: Option<Duration>,
}

/// What `POST /v1/keys/{id}/rotate` is told.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Rotation {
    /// How long the key still works beside the one that takes its place.
    #[serde(with = "span")]
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

fn view(record: &KeyRecord) -> Value {
    json!({
        "id": record.id,
        "prefix": format!("weir_{}_", record.id),
        "role": record.role,
        "tenant": record.tenant,
        "label": record.label,
        "functions": record.functions,
        "created": record.created,
        "created_by": record.created_by,
        "expires": record.expires,
        "revoked": record.revoked,
    })
}

/// `GET /v1/keys`
pub async fn list(
    State(node): State<Arc<Node>>,
    principal: Principal,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    let tenant = meant(&principal, &headers)?;
    let theirs = keys(&node)?
        .list(|key| tenant.as_ref().is_none_or(|tenant| key.principal.tenant.as_ref() == Some(tenant)));
    let listed: Vec<Value> = theirs
        .iter()
        .map(|(record, used)| {
            let mut view = view(record);
            if let (Some(fields), Some(used)) = (view.as_object_mut(), used) {
                let at = std::time::UNIX_EPOCH + Duration::from_secs(used.unsigned_abs());
                fields
                    .insert("last_used".to_owned(), humantime::format_rfc3339_seconds(at).to_string().into());
            }
            view
        })
        .collect();
    Ok(Json(json!({ "keys": listed })))
}

/// `POST /v1/keys`
pub async fn make(State(node): State<Arc<Node>>, by: Actor, request: Request) -> Result<Response, Problem> {
    let (principal, tenant) = asker(&request)?;
    keys(&node)?;
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
    let mut record = KeyRecord {
        label: wanted.label,
        functions: wanted.functions,
        created_by: principal.key.as_deref().map(str::to_owned),
        ..KeyRecord::of(wanted.role, tenant.as_ref())
    };
    if let Some(time) = wanted.expires_in {
        record.expire_in(time);
    }
    let (record, token) = whole(async move { node.make_key(record, &by).await }).await?;
    Ok(shown_once(&record, token.as_str()))
}

/// `POST /v1/keys/{id}/rotate`
pub async fn rotate(
    State(node): State<Arc<Node>>,
    Path(id): Path<String>,
    by: Actor,
    request: Request,
) -> Result<Response, Problem> {
    let (_, tenant) = asker(&request)?;
    keys(&node)?;
    let Rotation { overlap } = upload::json(&node, request).await?;
    let rotated = async move { node.rotate_key(&id, tenant.as_ref(), overlap, &by).await };
    let (record, token) = whole(rotated).await?;
    Ok(shown_once(&record, token.as_str()))
}

/// `DELETE /v1/keys/{id}`
pub async fn revoke(
    State(node): State<Arc<Node>>,
    Path(id): Path<String>,
    by: Actor,
    request: Request,
) -> Result<StatusCode, Problem> {
    let (_, tenant) = asker(&request)?;
    keys(&node)?;
    whole(async move { node.revoke_key(&id, tenant.as_ref(), &by).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Who asks, and for which tenant.
fn asker(request: &Request) -> Result<(Principal, Option<Name>), Problem> {
    let principal = request.extensions().get::<Principal>().cloned().ok_or_else(super::guard::no_key)?;
    let tenant = meant(&principal, request.headers())?;
    Ok((principal, tenant))
}

fn shown_once(record: &KeyRecord, token: &str) -> Response {
    let mut body = view(record);
    if let Some(fields) = body.as_object_mut() {
        fields.insert("key".to_owned(), token.into());
    }
    (StatusCode::CREATED, Json(body)).into_response()
}
