//! How tenants are billed, their credits, and the invoices that follow from these and the rate cards.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::guard::Tenant;
use super::precondition::{Precondition, tagged};
use super::problem::Problem;
use super::query::Asked;
use super::rates::{RestateQuery, status};
use super::{InvoiceMonth, TenantName, upload, whole};
use crate::access::{Principal, Right};
use crate::audit::Actor;
use crate::meter::money::card::RateCard;
use crate::meter::money::credit::Credit;
use crate::meter::money::{Amount, Billing, Currency, DEFAULT_CARD, Month};
use crate::name::Name;
use crate::node::Node;
use crate::schema::{MomentText, TenantText};

/// How a tenant is billed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TenantBilling")]
pub struct BillingView {
    #[schemars(with = "TenantText")]
    tenant: String,
    /// In the order in which they take effect. Before the first, and without any, it is the card `default`.
    versions: Vec<Billing>,
    /// The rate cards that these are about, as they are now.
    rate_cards: Vec<RateCard>,
}

impl BillingView {
    fn of(node: &Node, tenant: &Name, versions: Vec<Billing>) -> Self {
        let names: BTreeSet<&str> =
            versions.iter().map(|version| &*version.rate_card).chain([DEFAULT_CARD]).collect();
        let cards = names.into_iter().filter_map(|name| node.money.card(name)).map(Arc::unwrap_or_clone);
        let (tenant, rate_cards) = (tenant.to_string(), cards.collect());
        Self { tenant, versions, rate_cards }
    }
}

/// The tenant of a path, if whoever asks may know of it.
fn theirs(node: &Node, principal: &Principal, name: &Name) -> Result<(), Problem> {
    let is_theirs = principal.tenant.as_ref().is_none_or(|tenant| *tenant == *name);
    match (is_theirs || principal.may(Right::Operate)) && node.tenants().contains(&**name) {
        true => Ok(()),
        false => Err(Problem::no_tenant(name)),
    }
}

/// `GET /v1/tenants/{name}/billing`
pub async fn show(
    State(node): State<Arc<Node>>,
    principal: Principal,
    TenantName(name): TenantName,
) -> Result<Response, Problem> {
    theirs(&node, &principal, &name)?;
    let kept = node.kept_billing(&name).await?;
    let versions = kept.as_ref().map(|kept| kept.record.versions.clone()).unwrap_or_default();
    Ok(tagged(kept.as_ref(), Json(BillingView::of(&node, &name, versions))))
}

/// `PUT /v1/tenants/{name}/billing`: adds a version. 201 for the first.
pub async fn set(
    State(node): State<Arc<Node>>,
    (principal, TenantName(name)): (Principal, TenantName),
    by: Actor,
    condition: Precondition,
    Asked(query): Asked<RestateQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let billing: Billing = upload::json(&node, request).await?;
    theirs(&node, &principal, &name)?;
    let (change, tenant) = (Arc::clone(&node), name.clone());
    let set = async move { change.set_billing(&tenant, billing, (query.meant(), &condition), &by).await };
    let (priced, tag) = whole(set).await?;
    let view = BillingView::of(&node, &name, node.money.billing(&name));
    Ok(tag.on((status(priced), Json(view))))
}

/// A credit that is to be given.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCredit {
    currency: Currency,
    /// More than 0, with no more digits after the point than the currency has.
    amount: Amount,
    /// The first month whose invoice it pays of; this month when absent.
    from: Option<Month>,
    /// The last one; for as long as there is something left of it when absent.
    through: Option<Month>,
    /// What it is for.
    #[schemars(length(min = 1, max = 200))]
    reason: String,
}

/// A credit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Credit")]
pub struct CreditView {
    id: String,
    currency: Currency,
    amount: Amount,
    /// What the invoices of months that have ended have left of it.
    left: String,
    /// The first month whose invoice it pays of.
    from: Month,
    /// The last one; null for as long as there is something left of it.
    through: Option<Month>,
    reason: String,
    #[schemars(with = "MomentText")]
    created: String,
}

/// The credits of a tenant, in the order in which they were given.
#[derive(Serialize, JsonSchema)]
pub struct CreditList {
    #[schemars(with = "TenantText")]
    tenant: String,
    credits: Vec<CreditView>,
}

fn view((credit, left): (Credit, String)) -> CreditView {
    let Credit { id, currency, amount, from, through, reason, created, .. } = credit;
    CreditView { id, currency, amount, left, from, through, reason, created }
}

/// `GET /v1/tenants/{name}/credits`
pub async fn credits(
    State(node): State<Arc<Node>>,
    principal: Principal,
    TenantName(name): TenantName,
) -> Result<Json<CreditList>, Problem> {
    theirs(&node, &principal, &name)?;
    let credits = node.credits_left(&name).await?.into_iter().map(view).collect();
    Ok(Json(CreditList { tenant: name.to_string(), credits }))
}

/// `POST /v1/tenants/{name}/credits`
pub async fn give_credit(
    State(node): State<Arc<Node>>,
    (principal, TenantName(name)): (Principal, TenantName),
    by: Actor,
    headers: HeaderMap,
    Asked(query): Asked<RestateQuery>,
    request: Request,
) -> Result<(StatusCode, Json<CreditView>), Problem> {
    let wanted: NewCredit = upload::json(&node, request).await?;
    theirs(&node, &principal, &name)?;
    let claim = node.once.claim(&principal, &headers, &("credit", &*name, &wanted))?;
    let NewCredit { currency, amount, from, through, reason } = wanted;
    let credit = Credit {
        tenant: name.to_string(),
        id: hex::encode(crate::random::<6>().map_err(|error| Problem::internal(&error))?),
        currency,
        amount,
        from: from.unwrap_or_else(|| node.month()),
        through,
        reason,
        created: crate::now(),
    };
    let given = async move {
        let given = node.give_credit(credit, query.meant(), &by).await;
        if let (Some(claim), Ok(credit)) = (claim, &given) {
            claim.credited(&credit.id);
        }
        given
    };
    let credit = whole(given).await?;
    let left = credit.amount.with_digits(credit.currency.digits());
    Ok((StatusCode::CREATED, Json(view((credit, left)))))
}

/// The query of `GET /v1/invoices/{month}`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InvoiceQuery {
    #[serde(default)]
    format: InvoiceFormat,
}

/// How an invoice is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InvoiceFormat {
    #[default]
    Json,
    Csv,
}

/// `GET /v1/invoices/{month}`
pub async fn invoice(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    InvoiceMonth(month): InvoiceMonth,
    Asked(InvoiceQuery { format }): Asked<InvoiceQuery>,
) -> Result<Response, Problem> {
    let invoice = node.invoice(&tenant, month).await?;
    match format {
        InvoiceFormat::Json => Ok(Json(invoice).into_response()),
        InvoiceFormat::Csv => {
            let csv = invoice.csv().map_err(|error| Problem::internal(&error.into()))?;
            Ok(([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], csv).into_response())
        }
    }
}
