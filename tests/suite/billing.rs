//! Rate cards, how tenants are billed, credits and invoices, over HTTP and on the command line. What they are computed as is
//! tested where that is done.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use weir_tests::{Process, Server, guests, until};

use crate::access::{Who, two_tenants};
use weir::config::Settings;

/// The month that it is, a number of months before this one.
fn month(before: u64) -> String {
    let mut day = SystemTime::now();
    let name = |day: SystemTime| humantime::format_rfc3339(day).to_string()[..7].to_owned();
    for _ in 0..before {
        let this = name(day);
        while name(day) == this {
            day -= Duration::from_secs(24 * 3600);
        }
    }
    name(day)
}

fn first_hour(month: &str) -> String {
    format!("{month}-01T00:00:00Z")
}

/// A version of a card, in which a call costs so much.
fn rates(from: &str, call: u32) -> Value {
    let million = (u64::from(call) * 1_000_000).to_string();
    json!({
        "currency": "EUR",
        "effective_from": from,
        "prices": { "calls": { "million_calls": million }, "devices": { "cpu": { "device_second": "0.5" } } },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn cards_have_versions_and_months_that_have_ended_stay_as_they_are() {
    let (server, operator) = two_tenants().await;
    let set = async |path: &str, body: Value| operator.asks(&server, "PUT", path, Some(body)).await;
    let (this, before) = (month(0), month(1));
    let made = set("/v1/rate-cards/default", rates(&first_hour(&this), 1)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let late = set("/v1/rate-cards/default", rates(&first_hour(&before), 2)).await;
    assert_eq!((late.status, late.code()), (409, "conflict"), "{}", late.text());
    assert!(late.text().contains("?restate=true") && late.text().contains(&this), "{}", late.text());
    let meant = set("/v1/rate-cards/default?restate=true", rates(&first_hour(&before), 2)).await;
    assert_eq!(meant.status, 200, "{}", meant.text());
    let again = set("/v1/rate-cards/default", rates(&first_hour(&this), 3)).await;
    assert_eq!(again.status, 200, "{}", again.text());
    let shown = operator.asks(&server, "GET", "/v1/rate-cards/default", None).await;
    let version =
        |rates: Value| json!({ "effective_from": rates["effective_from"], "prices": rates["prices"] });
    let versions = [rates(&first_hour(&before), 2), rates(&first_hour(&this), 3)].map(version);
    assert_eq!(shown.json, json!({ "name": "default", "currency": "EUR", "versions": versions }));
    assert_eq!(shown.headers["etag"], again.headers["etag"]);
    let listed = operator.asks(&server, "GET", "/v1/rate-cards", None).await;
    assert_eq!(listed.json, json!({ "rate_cards": [shown.json] }));

    for (change, says) in [
        (json!({ "currency": "USD" }), "the card is in EUR, and stays so"),
        (json!({ "currency": "EURO" }), "is not a currency's code"),
        (json!({ "effective_from": "2026-11-01T00:30:00Z" }), "is not the start of an hour"),
        (json!({ "prices": { "calls": { "million_calls": 1 } } }), "million_calls"),
        (json!({ "prices": { "devices": { "cpu": { "egress_gib": "1" } } } }), "unknown field `egress_gib`"),
        (json!({ "classes": { "gpu 0": "a" } }), "is no name of a device"),
    ] {
        let mut body = rates(&first_hour(&this), 1);
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let refused = set("/v1/rate-cards/default", body).await;
        assert_eq!((refused.status, refused.code()), (422, "invalid_config"), "{}", refused.text());
        assert!(refused.text().contains(says), "{}", refused.text());
    }
    assert_eq!(operator.asks(&server, "GET", "/v1/rate-cards/none", None).await.status, 404);
    let audit = operator.asks(&server, "GET", "/v1/audit?limit=1000&after=0", None).await;
    assert!(audit.text().contains("\"kind\":\"rate_cards\""), "{}", audit.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_a_card_prices_and_credits_of_its_own() {
    let (server, operator) = two_tenants().await;
    let admin = operator.meaning("acme").makes(&server, json!({ "role": "admin" })).await;
    let other = operator.meaning("other").makes(&server, json!({ "role": "admin" })).await;
    let (this, before) = (month(0), month(1));
    for (name, currency) in [("default", "EUR"), ("dollars", "USD")] {
        let mut rates = rates(&first_hour(&this), 1);
        rates["currency"] = currency.into();
        let made = operator.asks(&server, "PUT", &format!("/v1/rate-cards/{name}"), Some(rates)).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let path = "/v1/tenants/acme/billing";
    let set = async |who: &Who, body: Value| who.asks(&server, "PUT", path, Some(body)).await;
    let own = json!({
        "effective_from": format!("{this}-02T05:00:00Z"),
        "rate_card": "default",
        "prices": { "calls": { "egress_gib": "0.05" } },
    });
    assert_eq!(set(&admin, own.clone()).await.code(), "forbidden");
    let made = set(&operator, own.clone()).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let none = set(&operator, json!({ "effective_from": first_hour(&this), "rate_card": "none" })).await;
    assert_eq!(none.code(), "invalid_config", "{}", none.text());
    let mut dollars = own.clone();
    dollars["rate_card"] = "dollars".into();
    let currency = set(&operator, dollars).await;
    assert!(currency.text().contains("a currency changes with a month"), "{}", currency.text());
    let shown = admin.asks(&server, "GET", path, None).await;
    assert_eq!((&shown.json["tenant"], &shown.json["versions"]), (&json!("acme"), &json!([own])));
    let cards = shown.json["rate_cards"].as_array().unwrap();
    let names: Vec<&Value> = cards.iter().map(|card| &card["name"]).collect();
    assert_eq!(names, ["default"], "of the cards a tenant sees its own");
    assert_eq!(other.asks(&server, "GET", path, None).await.status, 404);

    let path = "/v1/tenants/acme/credits";
    let give = async |who: &Who, query: &str, body: Value| {
        who.asks(&server, "POST", &format!("{path}{query}"), Some(body)).await
    };
    let credit = json!({ "currency": "EUR", "amount": "12.50", "reason": "welcome" });
    assert_eq!(give(&admin, "", credit.clone()).await.code(), "forbidden");
    let given = give(&operator, "", credit).await;
    assert_eq!((given.status, &given.json["from"]), (201, &json!(this)), "{}", given.text());
    let old =
        json!({ "currency": "EUR", "amount": "1", "from": before, "through": before, "reason": "sorry" });
    assert_eq!(give(&operator, "", old.clone()).await.code(), "conflict");
    assert_eq!(give(&operator, "?restate=true", old).await.status, 201);
    let wrong = give(&operator, "", json!({ "currency": "EUR", "amount": "0.001", "reason": "r" })).await;
    assert!(wrong.text().contains("EUR has 2 digits"), "{}", wrong.text());
    let listed = admin.asks(&server, "GET", path, None).await;
    let left: Vec<Value> = listed.json["credits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|credit| json!([credit["amount"], credit["left"], credit["from"], credit["through"]]))
        .collect();
    assert_eq!(left, [json!(["12.5", "12.50", this, null]), json!(["1", "1.00", before, before])]);
    assert_eq!(other.asks(&server, "GET", path, None).await.status, 404);
    let next = operator.asks(&server, "GET", "/v1/invoices/9998-01", None).await;
    assert_eq!((next.status, next.code()), (400, "tenant_required"), "{}", next.text());
    let next = admin.asks(&server, "GET", "/v1/invoices/9998-01", None).await;
    assert!(next.text().contains("9998-01 has not begun"), "{}", next.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_on_the_invoice_and_a_budget_survives_a_restart() {
    let server = Server::start().await;
    let this = month(0);
    let made = server.put("/v1/rate-cards/default", rates(&first_hour(&this), 1)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(server.deploy("hello", guests::HELLO, json!({})).await.status, 201);
    assert_eq!(server.put("/v1/tenants/default", json!({ "spend_hard": "3" })).await.status, 200);
    for _ in 0..3 {
        assert_eq!(server.call("hello", "/", "").await.status, 200);
    }
    let spent = async || server.get("/v1/tenants/default").await.json["used"]["spend"] == "3";
    until("it is known what the calls cost", spent).await;
    let over = server.call("hello", "/", "").await;
    assert_eq!((over.status, over.code()), (402, "budget_exhausted"), "{}", over.text());
    let invoice = server.get(&format!("/v1/invoices/{this}")).await;
    assert_eq!(invoice.status, 200, "{}", invoice.text());
    assert_eq!((&invoice.json["closed"], &invoice.json["currency"]), (&json!(false), &json!("EUR")));
    let calls: Vec<&Value> = invoice.json["lines"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| line["unit"] == "million_calls")
        .collect();
    let line = json!({
        "unit": "million_calls", "rate_card": "default", "prices_of": first_hour(&this), "quantity": "0.000003",
        "price": "1000000", "amount": "3.00",
    });
    assert_eq!(calls, [&line], "{}", invoice.text());
    let csv = server.get(&format!("/v1/invoices/{this}?format=csv")).await;
    assert_eq!(csv.headers["content-type"], "text/csv; charset=utf-8");
    assert!(csv.text().contains(",0.000003,1000000,3.00,EUR,"), "{}", csv.text());

    let data = server.stop().await;
    let server = Server::on(Arc::clone(&data), Settings::default()).await;
    assert_eq!(server.call("hello", "/", "").await.status, 402, "from the first call on");
    let again = server.get(&format!("/v1/invoices/{this}")).await;
    // What the calls left behind them came later, and has no price.
    assert_eq!((&again.json["lines"], &again.json["total"]), (&invoice.json["lines"], &json!("3.00")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_sets_and_shows_all_of_it() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve(data.path()).await;
    let this = month(0);
    let run = async |arguments: &[&str]| {
        let output = server.command(arguments).await;
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{arguments:?}: {err}");
        out
    };
    let (card, own) = (data.path().join("card.json"), data.path().join("own.json"));
    std::fs::write(&card, rates(&first_hour(&this), 1).to_string()).unwrap();
    let prices =
        json!({ "effective_from": first_hour(&this), "prices": { "calls": { "egress_gib": "0.05" } } });
    std::fs::write(&own, prices.to_string()).unwrap();
    let (card, own) = (card.to_str().unwrap(), own.to_str().unwrap());
    let made = run(&["rates", "set", "default", card]).await;
    assert!(made.contains("default is a new card") && made.contains("million_calls"), "{made}");
    assert!(run(&["rates"]).await.contains("default (EUR)"));
    assert!(run(&["rates", "show", "default"]).await.contains("device_second"));
    assert!(run(&["billing", "set", "default", own]).await.contains("egress_gib"));
    assert!(run(&["billing", "show", "default"]).await.contains("0.05"));
    assert!(run(&["credits", "give", "default", "12.50", "EUR", "welcome"]).await.contains("12.50"));
    assert!(run(&["credits", "list", "default"]).await.contains("welcome"));
    let text = run(&["invoice", &this]).await;
    assert!(text.starts_with(&format!("Invoice of {this} for default (so far)")), "{text}");
    assert!(text.contains("subtotal") && text.contains("All amounts are in EUR."), "{text}");
    let json: Value = serde_json::from_str(&run(&["invoice", &this, "--format", "json"]).await).unwrap();
    assert_eq!((&json["tenant"], &json["total"]), (&json!("default"), &json!("0.00")));
    let csv = run(&["invoice", &this, "--format", "csv"]).await;
    assert!(csv.lines().last().unwrap().contains(",total,"), "{csv}");
    let wrong = server.command(&["invoice", "../tenants"]).await;
    assert_eq!(wrong.status.code(), Some(2));
}
