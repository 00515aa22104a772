//! `weir billing`, `weir credits` and `weir invoice`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use super::Context;
use super::client::Failure;
use super::output::{self, Fields, list, text};
use super::rates::{prices, read, restated};

#[derive(Args)]
pub struct Billing {
    #[command(subcommand)]
    action: BillingAction,
}

#[derive(Subcommand)]
enum BillingAction {
    /// Show how a tenant is billed
    Show {
        /// The tenant's name
        name: String,
    },
    /// Set how a tenant is billed from an hour on
    Set {
        /// The tenant's name
        name: String,
        /// A file: JSON with effective_from, and rate_card or prices or both
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The invoices of months that have ended may change by it
        #[arg(long)]
        restate: bool,
    },
}

impl Billing {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = &context.client;
        let billing = match self.action {
            BillingAction::Show { name } => client.get(&format!("/v1/tenants/{name}/billing")).await?,
            BillingAction::Set { name, file, restate } => {
                let path = format!("/v1/tenants/{name}/billing{}", restated(restate));
                client.json(client.request(Method::PUT, &path).json(&read(&file)?)).await?
            }
        };
        if context.json {
            output::json(&billing);
            return Ok(());
        }
        let rows = list(billing.at("versions")).iter().flat_map(|version| {
            let (from, card) = (text(version.at("effective_from")), text(version.at("rate_card")));
            let own = prices(&from, version.at("prices"));
            let own = own.into_iter().map(|[from, of, unit, price]| [from, String::new(), of, unit, price]);
            let none = String::new;
            std::iter::once([from, card, none(), none(), none()]).chain(own).collect::<Vec<_>>()
        });
        output::table(["FROM", "RATE CARD", "OF", "UNIT", "OWN PRICE"], rows);
        Ok(())
    }
}

#[derive(Args)]
pub struct Credits {
    #[command(subcommand)]
    action: CreditAction,
}

#[derive(Subcommand)]
enum CreditAction {
    /// List a tenant's credits, and what is left of them
    List {
        /// The tenant's name
        name: String,
    },
    /// Give a tenant a credit
    Give {
        /// The tenant's name
        name: String,
        /// How much, such as 25.00
        amount: String,
        /// The currency's code, such as EUR
        currency: String,
        /// What it is for
        reason: String,
        /// The first month whose invoice it pays of, such as 2026-11; this month if it is not set
        #[arg(long, value_name = "MONTH")]
        from: Option<String>,
        /// The last one; for as long as there is something left of it if it is not set
        #[arg(long, value_name = "MONTH")]
        through: Option<String>,
        /// The invoices of months that have ended may change by it
        #[arg(long)]
        restate: bool,
    },
}

impl Credits {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = &context.client;
        let answer = match self.action {
            CreditAction::List { name } => client.get(&format!("/v1/tenants/{name}/credits")).await?,
            CreditAction::Give { name, amount, currency, reason, from, through, restate } => {
                let path = format!("/v1/tenants/{name}/credits{}", restated(restate));
                let body = json!({
                    "currency": currency, "amount": amount, "reason": reason, "from": from, "through": through,
                });
                client.json(client.request(Method::POST, &path).json(&body)).await?
            }
        };
        if context.json {
            output::json(&answer);
            return Ok(());
        }
        let given = [answer.clone()];
        let credits = if answer.at("credits").is_array() { list(answer.at("credits")) } else { &given };
        let fields = ["id", "amount", "left", "currency", "from", "through", "reason"];
        let rows = credits.iter().map(|credit| fields.map(|field| text(credit.at(field))));
        output::table(["CREDIT", "AMOUNT", "LEFT", "CURRENCY", "FROM", "THROUGH", "REASON"], rows);
        Ok(())
    }
}

#[derive(Args)]
pub struct Invoice {
    /// The month, such as 2026-11
    month: String,
    /// How it is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Csv,
}

impl Invoice {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = &context.client;
        // It is part of a path.
        if !self.month.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
            return Err(Failure::Usage(format!("`{}` is not a month: write it as 2026-11", self.month)));
        }
        let path = format!("/v1/invoices/{}", self.month);
        if self.format == Format::Csv {
            let request = client.request(Method::GET, &path).query(&[("format", "csv")]);
            let response = client.send(request).await?;
            if !response.status().is_success() {
                return Err(client.refusal(response).await);
            }
            let text = response.text().await.map_err(|error| super::client::broken(&error))?;
            output::line(text.trim_end());
            return Ok(());
        }
        let invoice = client.get(&path).await?;
        if context.json || self.format == Format::Json {
            output::json(&invoice);
        } else {
            show(&invoice);
        }
        Ok(())
    }
}

/// An invoice for people.
fn show(invoice: &Value) {
    let field = |name: &str| text(invoice.at(name));
    let so_far = if *invoice.at("closed") == Value::Bool(true) { "" } else { " (so far)" };
    output::line(format!("Invoice of {} for {}{so_far}", field("month"), field("tenant")));
    let currency = field("currency");
    let none = String::new;
    let of = |line: &Value| line.at("class").as_str().unwrap_or("-").to_owned();
    let line = |line: &Value| {
        let [unit, card, since, quantity, price, amount] =
            ["unit", "rate_card", "prices_of", "quantity", "price", "amount"].map(|name| text(line.at(name)));
        [of(line), unit, format!("{card} {since}"), quantity, price, amount]
    };
    let credit = |credit: &Value| {
        let (reason, available) = (text(credit.at("reason")), text(credit.at("available")));
        let amount = format!("-{}", text(credit.at("amount")));
        ["-".to_owned(), "credit".to_owned(), reason, available, none(), amount]
    };
    let sum = |name: &str| ["-".to_owned(), name.to_owned(), none(), none(), none(), field(name)];
    let rows = list(invoice.at("lines")).iter().map(line).chain([sum("subtotal")]);
    let rows = rows.chain(list(invoice.at("credits")).iter().map(credit)).chain([sum("total")]);
    output::table(["OF", "UNIT", "PRICES", "QUANTITY", "PRICE", "AMOUNT"], rows);
    output::line(format!("All amounts are in {currency}."));
    for unpriced in list(invoice.at("unpriced")) {
        let [unit, quantity] = ["unit", "quantity"].map(|name| text(unpriced.at(name)));
        output::line(format!("Without a price: {quantity} {unit} ({})", of(unpriced)));
    }
}
