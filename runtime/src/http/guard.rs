//! Who comes in: the routes, what each of them asks for, and the look at each request's key before its route is reached.
//!
//! A route is added with what it needs, and in no other way, so that none is forgotten. What it needs is looked at before
//! a byte of the body is read. Whose things it is about follows from the key; only an operator, whose key is of no tenant,
//! names a tenant, in the header `weir-tenant`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use http::request::Parts;
use http::{HeaderMap, header};
use http_body::Body as _;

use super::local;
use super::openapi::Route;
use super::problem::{Code, Problem};
use super::upload::ReadToEnd;
use crate::access::{Access, Principal, Right, Role, Wrong, is_token};
use crate::audit::Actor;
use crate::name::Name;
use crate::node::Node;

/// The header by which an operator says whose things it means.
pub const TENANT: &str = "weir-tenant";

/// What a route asks of whoever uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// A key with this right.
    Right(Right),
    /// What the function says that is called: it may be open to all.
    Call,
}

/// All routes, as they are added.
#[derive(Default)]
pub struct Routes(Vec<(Route, MethodRouter<Arc<Node>>)>);

/// Where a request came from, as its connection says.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

impl Routes {
    /// A route with one method, as `handler` has it.
    #[must_use]
    pub fn on(
        mut self,
        method: &'static str,
        path: &'static str,
        needs: Needs,
        handler: MethodRouter<Arc<Node>>,
    ) -> Self {
        self.0.push(((method, path, needs), handler));
        self
    }

    pub fn list(&self) -> Vec<Route> {
        self.0.iter().map(|(route, _)| *route).collect()
    }

    /// The router, each of whose routes looks at a request's key before all else.
    pub fn guarded(self, node: &Arc<Node>) -> Router<Arc<Node>> {
        let mut router = Router::new();
        for ((method, path, needs), handler) in self.0 {
            let guard = from_fn_with_state(Guard { node: Arc::clone(node), needs }, look);
            // A route for all methods has none of its own.
            let guarded = if method == "ANY" { handler.layer(guard) } else { handler.route_layer(guard) };
            router = router.route(path, guarded);
        }
        router
    }
}

#[derive(Clone)]
struct Guard {
    node: Arc<Node>,
    needs: Needs,
}

async fn look(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let node = Arc::clone(&guard.node);
    let response = let_in(guard, request, next).await;
    if let Some(code) = response.extensions().get::<Code>() {
        node.telemetry.problem(*code);
    }
    response
}

/// The answer to a request: its route's, if whoever asks may have it.
async fn let_in(guard: Guard, mut request: Request, next: Next) -> Response {
    let Guard { node, needs } = guard;
    if !request.body().is_end_stream() {
        request = request.map(|body| Body::new(ReadToEnd::new(body)));
    }
    let peer = request.extensions().get::<Peer>().map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.ip());
    let mut actor = Actor { from: Some(peer), ..Actor::default() };
    match admit(&node, (request.uri().path(), request.headers()), needs, peer, &mut actor) {
        Ok(principal) => {
            // Keys are ours: a function never sees one.
            if token(request.headers()).is_some() {
                request.headers_mut().remove(header::AUTHORIZATION);
            }
            if let Some(principal) = principal {
                request.extensions_mut().insert(principal);
            }
            let changes = matches!(needs, Needs::Right(_)) && !request.method().is_safe();
            if !changes {
                return next.run(request).await;
            }
            actor.request = Actor::request(request.method(), request.uri().path());
            request.extensions_mut().insert(actor.clone());
            let response = next.run(request).await;
            if let Some(code) = response.extensions().get::<Code>() {
                node.refused(&actor, *code).await;
            }
            response
        }
        Err(problem) => {
            // Who sends no key of ours has nothing to be told of, and addresses that are wrong too often have been.
            if token(request.headers()).is_some() && problem.code != Code::TooManyFailures {
                actor.request = Actor::request(request.method(), request.uri().path());
                node.refused(&actor, problem.code).await;
            }
            problem.into_response()
        }
    }
}

/// The key that a request carries, if it carries one of ours.
fn token(headers: &HeaderMap) -> Option<&str> {
    headers.get_all(header::AUTHORIZATION).iter().find_map(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        let token = token.trim_start();
        (scheme.eq_ignore_ascii_case("bearer") && is_token(token)).then_some(token)
    })
}

/// Who asks, if that is known, and may. What is found out on the way is noted in `actor`.
fn admit(
    node: &Node,
    (path, headers): (&str, &HeaderMap),
    needs: Needs,
    peer: IpAddr,
    actor: &mut Actor,
) -> Result<Option<Principal>, Problem> {
    if needs == Needs::Nothing {
        return Ok(None);
    }
    let (keys, failures) = match &node.access {
        Access::Dev(tenant) => {
            if let Needs::Right(_) = needs {
                local::check(headers)?;
            }
            let role = Role::Operator;
            actor.role = Some(role);
            actor.tenant = Some((**tenant).to_owned());
            return Ok(Some(Principal { key: None, role, tenant: Some(tenant.clone()), functions: None }));
        }
        Access::Keys { keys, failures } => (keys, failures),
    };
    let Some(token) = token(headers) else {
        return match needs {
            Needs::Right(_) => Err(unknown(headers)),
            Needs::Nothing | Needs::Call => Ok(None),
        };
    };
    let principal = match keys.verify(token) {
        Ok(principal) => principal,
        Err(wrong) => {
            let is_too_often = failures.note(peer, Instant::now()).is_some();
            // More would let anyone fill the log.
            if !is_too_often {
                tracing::warn!(%peer, %wrong, "a wrong key");
            }
            // Who has the secret of a key that has ended does not guess.
            if wrong == Wrong::Unknown && is_too_often {
                let detail = "too many wrong keys came from this address";
                return Err(Problem::new(Code::TooManyFailures, detail));
            }
            return Err(wrong.into());
        }
    };
    actor.key = principal.key.as_deref().map(str::to_owned);
    actor.role = Some(principal.role);
    let tenant = meant(&principal, headers).ok().flatten();
    actor.tenant = tenant.or_else(|| in_path(path)).map(|tenant| tenant.to_string());
    node.serves(&principal)?;
    match needs {
        Needs::Right(right) if !principal.may(right) => Err(forbidden(&principal)),
        _ => Ok(Some(principal)),
    }
}

/// The tenant that a path is about.
fn in_path(path: &str) -> Option<Name> {
    Name::tenant(path.strip_prefix("/v1/tenants/")?.split('/').next()?).ok()
}

/// A request without a key, where one is needed.
pub fn no_key() -> Problem {
    Problem::new(Code::Unauthorized, "this needs a key: send it as `Authorization: Bearer weir_…`")
}

/// A request with no key of ours, where one is needed: it may have sent something else.
pub fn unknown(headers: &HeaderMap) -> Problem {
    if headers.contains_key(header::AUTHORIZATION) {
        let detail = "what was sent as `Authorization` is no key of Weir's; send one as `Bearer weir_…`";
        return Problem::new(Code::Unauthorized, detail);
    }
    no_key()
}

/// A request with a key that is not for this.
pub fn forbidden(principal: &Principal) -> Problem {
    let role = principal.role.name();
    let detail = match &principal.functions {
        Some(_) => {
            format!("this key of role `{role}` is for calls of the functions that it names, and no others")
        }
        None => format!("a key of role `{role}` may not do this"),
    };
    Problem::new(Code::Forbidden, detail)
}

impl<S: Send + Sync> FromRequestParts<S> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(no_key)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Actor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(no_key)
    }
}

/// The tenant whose things a request is about.
pub struct Tenant(pub Name);

impl FromRequestParts<Arc<Node>> for Tenant {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, node: &Arc<Node>) -> Result<Self, Problem> {
        let principal = Principal::from_request_parts(parts, node).await?;
        let tenant = meant(&principal, &parts.headers)?;
        let tenant = tenant.ok_or_else(|| {
            let detail =
                format!("the key is of no tenant: name the one that is meant in the header `{TENANT}`");
            Problem::new(Code::TenantRequired, detail)
        })?;
        if principal.tenant.is_none() && !node.has_tenant(&tenant) {
            return Err(Problem::no_tenant(&tenant));
        }
        Ok(Self(tenant))
    }
}

/// The tenant that a request means, if it means one: its key's own, or for a key of none the one that it names.
///
/// # Errors
/// For a name that no tenant can have, or that is not the key's tenant.
pub fn meant(principal: &Principal, headers: &HeaderMap) -> Result<Option<Name>, Problem> {
    let named = match headers.get(TENANT) {
        Some(value) => {
            let name = value.to_str().unwrap_or_default();
            Some(Name::tenant(name).map_err(|reason| Problem::new(Code::InvalidName, reason))?)
        }
        None => None,
    };
    match (&principal.tenant, named) {
        (Some(own), Some(named)) if *own != named => Err(Problem::no_tenant(&named)),
        (Some(own), _) => Ok(Some(own.clone())),
        (None, named) => Ok(named),
    }
}
