//! `weir rates`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::Context;
use super::client::Failure;
use super::output::{self, Fields, list, text};

#[derive(Args)]
pub struct Rates {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// List rate cards
    List,
    /// Show a rate card: its prices, and from when on they hold
    Show {
        /// The card's name
        name: String,
    },
    /// Make a rate card, or set its prices from an hour on
    Set {
        /// The card's name; tenants for whom none is named have `default`
        name: String,
        /// A file with the prices: JSON with currency, effective_from and prices
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The invoices of months that have ended may change by it
        #[arg(long)]
        restate: bool,
    },
}

impl Rates {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = &context.client;
        let (status, answer) = match self.action.unwrap_or(Action::List) {
            Action::List => {
                let listed = client.list("/v1/rate-cards", "rate_cards").await?;
                if context.json {
                    output::json(&listed);
                } else {
                    list(listed.at("rate_cards")).iter().for_each(show);
                }
                return Ok(());
            }
            Action::Show { name } => (StatusCode::OK, client.get(&format!("/v1/rate-cards/{name}")).await?),
            Action::Set { name, file, restate } => {
                let body = read(&file)?;
                let path = format!("/v1/rate-cards/{name}{}", restated(restate));
                client.answer(client.request(Method::PUT, &path).json(&body)).await?
            }
        };
        if context.json {
            output::json(&answer);
            return Ok(());
        }
        if status == StatusCode::CREATED {
            output::line(format!("{} is a new card", text(answer.at("name"))));
        }
        show(&answer);
        Ok(())
    }
}

/// The query of a change that months which have ended may change by.
pub fn restated(restate: bool) -> &'static str {
    if restate { "?restate=true" } else { "" }
}

/// JSON from a file.
pub fn read(file: &Path) -> Result<Value, Failure> {
    let cannot = |error: &dyn std::fmt::Display| Failure::Usage(format!("{}: {error}", file.display()));
    let bytes = std::fs::read(file).map_err(|error| cannot(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| cannot(&error))
}

/// A card's prices, a line for each.
fn show(card: &Value) {
    output::line(format!("{} ({})", text(card.at("name")), text(card.at("currency"))));
    let versions = list(card.at("versions"));
    output::table(
        ["FROM", "OF", "UNIT", "PRICE"],
        versions.iter().flat_map(|version| prices(&text(version.at("effective_from")), version.at("prices"))),
    );
}

/// A line for each price: since when, of what, the unit, and the price.
pub fn prices(from: &str, prices: &Value) -> Vec<[String; 4]> {
    let of = |class: &str, prices: &Value| -> Vec<[String; 4]> {
        let row =
            |(unit, price): (&String, &Value)| [from.to_owned(), class.to_owned(), unit.clone(), text(price)];
        prices.as_object().into_iter().flatten().map(row).collect()
    };
    let devices = prices.at("devices").as_object().into_iter().flatten();
    let devices = devices.flat_map(|(class, prices)| of(class, prices));
    of("-", prices.at("calls")).into_iter().chain(devices).collect()
}
