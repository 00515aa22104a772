//! What a call is told of its tenant's budget and of the rates: whether it may go on, and what is left.
//!
//! What concerns a tenant as a whole is for those with a key of it, or of none. Others, who call a function that is open to
//! all, learn that they are refused and when to come back.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use tokio::time::Instant;

use super::problem::{Code, Problem};
use crate::access::Principal;
use crate::function::Function;
use crate::limits::Limit;
use crate::meter::money::budget::{Exhausted, HARD, Standing};
use crate::node::Node;
use crate::rates::{Left, Of, Rate};

/// A call that its tenant's budget and the rates let through.
pub struct Allowance {
    standing: Standing,
    left: Vec<Left>,
    is_theirs: bool,
}

impl Allowance {
    /// Takes one call of the rates.
    ///
    /// # Errors
    /// The answer to a call that may not go on.
    pub fn take(
        node: &Node,
        function: &Function,
        principal: Option<&Principal>,
        now: Instant,
    ) -> Result<Self, Box<Response>> {
        let own = |principal: &Principal| match &principal.tenant {
            Some(tenant) => **tenant == *function.tenant,
            None => true,
        };
        let is_theirs = principal.is_some_and(own);
        let standing = node
            .budgets
            .admit(&function.tenant, || node.clock())
            .map_err(|exhausted| Box::new(spent(node, function, &exhausted, is_theirs)))?;
        let left = node
            .rates
            .take(&function.rate, &function.tenant, now.into_std())
            .map_err(|over| Box::new(too_often(node, function, over, is_theirs)))?;
        Ok(Self { standing, left, is_theirs })
    }

    /// Tells of it with the answer.
    pub fn tell(&self, headers: &mut HeaderMap) {
        if self.is_theirs && self.standing == Standing::Soft {
            headers.insert("weir-budget", HeaderValue::from_static("soft"));
        }
        tell(headers, &self.left, self.is_theirs);
    }
}

/// The answer to a call of a tenant that has spent its budget.
fn spent(node: &Node, function: &Function, exhausted: &Exhausted, is_theirs: bool) -> Response {
    let Exhausted { setting, spent, most, wait } = exhausted;
    let next = humantime::format_duration(Duration::from_secs(wait.as_secs()));
    let [device, _] = HARD;
    let (limit, of) = match *setting == device {
        true => (Limit::Budget, "milliseconds of the devices' time".to_owned()),
        false => (Limit::Spend, node.currency(&function.tenant)),
    };
    let detail = format!("the tenant has spent {spent} of {most} {of}; the next month begins in {next}");
    node.telemetry.limit(limit);
    function.log.note(0, 0, format!("{}: {detail}", limit.field()));
    function.rest.refused(Code::BudgetExhausted.name());
    let detail = if is_theirs { detail } else { format!("the next month begins in {next}") };
    Problem::new(Code::BudgetExhausted, detail).into_response()
}

/// The answer to a call that came too soon.
fn too_often(node: &Node, function: &Function, over: Left, is_theirs: bool) -> Response {
    let Rate { per_second, burst } = over.rate;
    let (whose, limit) = match over.of {
        Of::Function => ("the function may be called", Limit::FunctionCallRate),
        Of::Tenant => ("the tenant may call", Limit::CallRate),
    };
    let detail = format!("{whose} {per_second} times a second, and {burst} times at once");
    node.telemetry.limit(limit);
    function.log.note(0, 0, format!("{}: {detail}", limit.field()));
    function.rest.refused(Code::RateLimited.name());
    let detail = match over.of {
        Of::Tenant if !is_theirs => "the function's tenant is called more often than it may".to_owned(),
        _ => detail,
    };
    let mut response = Problem::new(Code::RateLimited, detail).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds(over.wait)));
    tell(response.headers_mut(), &[over], is_theirs);
    response
}

/// Whole seconds, one at least, that are no shorter.
fn seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

/// What rates there are, and what is left of them. Source: draft-ietf-httpapi-ratelimit-headers-10.
fn tell(headers: &mut HeaderMap, left: &[Left], is_theirs: bool) {
    for Left { of, rate, calls, wait } in left.iter().filter(|left| is_theirs || left.of == Of::Function) {
        let of = of.name();
        for (name, value) in [
            ("ratelimit-policy", format!("\"{of}\";q={};w=1", rate.per_second)),
            ("ratelimit", format!("\"{of}\";r={calls};t={}", seconds(*wait))),
        ] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.append(name, value);
            }
        }
    }
}
