//! Rate cards: list, show, set.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::precondition::{Precondition, tagged};
use super::problem::{Code, Problem};
use super::query::{Asked, PageLimit};
use super::{CardName, upload, whole};
use crate::audit::Actor;
use crate::meter::money::card::{Prices, RateCard, Version};
use crate::meter::money::{Currency, Hour};
use crate::node::{Node, Priced, Restate};

/// Prices of a rate card, from an hour on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Of the card; it stays as it is.
    currency: Currency,
    /// The first hour that is priced by them. They take the place of those of the same hour.
    effective_from: Hour,
    /// The classes of devices, by the devices' names. A device that is not here is of the class of its kind, `cpu` or `gpu`.
    #[serde(default)]
    #[schemars(length(max = 100))]
    classes: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    prices: Prices,
}

/// A page of all rate cards, by name.
#[derive(Serialize, JsonSchema)]
pub struct RateCardList {
    rate_cards: Vec<RateCard>,
    /// What to ask for as `after` to have the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The query of `GET /v1/rate-cards`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateCardQuery {
    #[serde(default)]
    #[schemars(with = "Option<PageLimit>")]
    limit: PageLimit,
    /// `next` of the page before.
    after: Option<String>,
}

/// The query of a change of what is owed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestateQuery {
    /// Whether the invoices of months that have ended may change by it.
    #[serde(default)]
    restate: bool,
}

impl RestateQuery {
    pub fn meant(&self) -> Restate {
        if self.restate { Restate::Yes } else { Restate::No }
    }
}

/// 201 where there was nothing before.
pub fn status(priced: Priced) -> StatusCode {
    match priced {
        Priced::New => StatusCode::CREATED,
        Priced::Changed => StatusCode::OK,
    }
}

/// `GET /v1/rate-cards`
pub async fn list(State(node): State<Arc<Node>>, Asked(query): Asked<RateCardQuery>) -> Json<RateCardList> {
    let mut cards: Vec<RateCard> = node.money.cards().into_values().map(Arc::unwrap_or_clone).collect();
    cards.sort_by(|one, other| one.name.cmp(&other.name));
    let (rate_cards, next) = query.limit.page(cards, query.after, |card| card.name.clone());
    Json(RateCardList { rate_cards, next })
}

/// `GET /v1/rate-cards/{name}`
pub async fn show(State(node): State<Arc<Node>>, CardName(name): CardName) -> Result<Response, Problem> {
    let kept = node.kept_rates(&name).await?;
    let no_card = || Problem::new(Code::NotFound, format!("there is no rate card `{name}`"));
    let card = Json(kept.as_ref().ok_or_else(no_card)?.record.clone());
    Ok(tagged(kept.as_ref(), card))
}

/// `PUT /v1/rate-cards/{name}`: adds a version. 201 for a card that was not there.
pub async fn set(
    State(node): State<Arc<Node>>,
    CardName(name): CardName,
    by: Actor,
    condition: Precondition,
    Asked(query): Asked<RestateQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let Rates { currency, effective_from, classes, prices } = upload::json(&node, request).await?;
    let version = Version { effective_from, classes, prices };
    let set = async move { node.set_rates(&name, currency, version, (query.meant(), &condition), &by).await };
    let (priced, tag, card) = whole(set).await?;
    Ok(tag.on((status(priced), Json(Arc::unwrap_or_clone(card)))))
}
