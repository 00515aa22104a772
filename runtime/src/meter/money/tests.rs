//! A month from raw records to invoices: as the page has it, and as an independent program computes it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use serde_json::{Value, json};

use super::credit::{Balance, Credit};
use super::invoice::{Costs, Invoice, first_month};
use super::{Billing, Cards, Hour, Month, Tariff};
use crate::meter::ledger::Position;
use crate::meter::record::{Kind, Outcome, Record, Use};
use crate::meter::rollup::Batch;
use crate::meter::totals::Totals;
use crate::store::Store;

fn hour(text: &str) -> u64 {
    text.parse::<Hour>().unwrap().millis()
}

/// All of it that is set: cards, and a tenant's billing and credits, as the HTTP surface gives them.
struct Set {
    cards: Value,
    billing: Value,
    credits: Value,
}

impl Set {
    fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
        serde_json::from_value(value.clone()).unwrap()
    }

    fn cards(&self) -> Cards {
        let cards: Vec<super::card::RateCard> = Self::read(&self.cards);
        cards.into_iter().map(|card| (card.name.clone(), Arc::new(card))).collect()
    }
}

/// A store with sums of these records.
async fn summed(records: &[Record]) -> (tempfile::TempDir, Store) {
    let data = tempfile::tempdir().unwrap();
    let store = Store::open(data.path(), &[]).await.unwrap();
    let mut totals = Totals::default();
    records.iter().for_each(|record| totals.add(record));
    let to = Position { segment: 1, offset: 1 };
    store.add_usage(&Batch { totals, from: Position::default(), to }).await.unwrap();
    (data, store)
}

/// The invoice as the node makes it.
async fn invoice(store: &Store, tenant: &str, month: &str, set: &Set) -> Invoice {
    let (month, billing): (Month, Vec<Billing>) = (month.parse().unwrap(), Set::read(&set.billing));
    let credits: Vec<Credit> = Set::read(&set.credits);
    let tariff = Tariff::new(&set.cards(), &billing);
    let mut balance = Balance::new(&credits);
    let mut at = first_month(&credits, month);
    loop {
        let rows = store.usage_by_hour(tenant, at.start(), at.end()).await.unwrap();
        let invoice = Costs::new(at, &tariff, &rows).unwrap().invoice(tenant, at, true, &mut balance);
        if at == month {
            return invoice;
        }
        at = at.next();
    }
}

fn credit(id: &str, amount: &str, from: &str, through: Option<&str>) -> Value {
    json!({
        "tenant": "acme", "id": id, "currency": "EUR", "amount": amount, "from": from, "through": through,
        "reason": "welcome", "created": "2026-10-01T00:00:00Z",
    })
}

#[tokio::test]
async fn the_example_of_the_page_is_as_it_says() {
    let page = include_str!("../../../../docs/billing.md");
    let mut blocks = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut json = || serde_json::from_str::<Value>(blocks.next().unwrap()).unwrap();
    let (mut version, own) = (json(), json());
    let currency = version.as_object_mut().unwrap().remove("currency").unwrap();
    let set = Set {
        cards: json!([{ "name": "default", "currency": currency, "versions": [version] }]),
        billing: json!([own]),
        credits: json!([credit("c1", "10.00", "2026-11", Some("2027-01"))]),
    };
    let (early, late) = (hour("2026-11-02T07:00:00Z"), hour("2026-11-16T00:00:00Z"));
    let on = |device: &str| Use { device: device.into(), ..Use::default() };
    let record = |time: u64, calls: u64, uses: Vec<Use>| Record {
        time,
        tenant: "acme".into(),
        calls,
        uses,
        ..Record::default()
    };
    let records = [
        record(
            early,
            2_500_000,
            vec![
                Use { device_ns: 3_600_000_000_500, ..on("cpu") },
                Use {
                    device_ns: 12_345_678_901_234,
                    memory_byte_ms: 720_000_500 << 30,
                    loads: 7,
                    ..on("gpu0")
                },
            ],
        ),
        record(late - 1, 0, vec![]),
        record(late, 125_000, vec![Use { device_ns: 5_000_000_000_000, ..on("gpu0") }]),
        record(hour("2026-12-01T00:00:00Z"), 1_000_000_000, vec![]),
    ];
    let (_data, store) = summed(&records).await;
    let invoice = invoice(&store, "acme", "2026-11", &set).await;
    let mut rows = String::new();
    for line in &invoice.lines {
        let class = if line.class.is_empty() { "-" } else { &line.class };
        let super::invoice::Line { unit, prices_of, quantity, price, amount, .. } = line;
        writeln!(rows, "| {class} | {unit} | {prices_of} | {quantity} | {price} | {amount} |").unwrap();
    }
    writeln!(rows, "| - | subtotal | | | | {} |", invoice.subtotal).unwrap();
    for credit in &invoice.credits {
        let super::invoice::CreditLine { reason, available, amount, .. } = credit;
        writeln!(rows, "| - | credit | {reason} | {available} | | -{amount} |").unwrap();
    }
    writeln!(rows, "| - | total | | | | {} |", invoice.total).unwrap();
    assert!(page.contains(&rows), "docs/billing.md has another table than\n{rows}");
    let csv = String::from_utf8(invoice.csv().unwrap()).unwrap();
    let table: Vec<&str> = csv.lines().collect();
    assert_eq!(table.len(), 1 + invoice.lines.len() + 3, "{csv}");
    let line = "acme,2026-11,line,device_second,h200,default,2026-11-16T00:00:00Z,5000,0.0009,4.50,EUR,";
    assert!(table.contains(&line), "{csv}");
    assert_eq!(*table.last().unwrap(), "acme,2026-11,total,,,,,,,10.54,EUR,");
}

/// Numbers that look like any, and are the same each time.
struct Numbers(u64);

impl Numbers {
    /// Source: splitmix64, <https://prng.di.unimi.it/splitmix64.c>.
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
}

/// Three months of three tenants.
fn made_up() -> Vec<Record> {
    let mut numbers = Numbers(6);
    let (from, to) = (hour("2026-10-01T00:00:00Z"), hour("2027-01-01T00:00:00Z"));
    let tenants = ["acme", "bell", "city"];
    let record = |number: u64| {
        let kind = [Kind::Call, Kind::Call, Kind::Call, Kind::Rest, Kind::Residency]
            [usize::try_from(numbers.below(5)).unwrap()];
        let tenant = tenants[usize::try_from(numbers.below(3)).unwrap()];
        let mut record = Record {
            id: format!("00-{number:x}"),
            kind,
            time: from + numbers.below(to - from),
            tenant: tenant.into(),
            outcome: if numbers.below(8) == 0 { Outcome::Refused } else { Outcome::Answered },
            function: Some(format!("f{}", numbers.below(3)).into()),
            ..Record::default()
        };
        if kind != Kind::Residency {
            record.calls = u64::from(kind == Kind::Call);
            record.guest_cpu_ns = numbers.below(40_000_000_000);
            record.host_memory_byte_ms = numbers.below(1 << 50);
            record.egress_bytes = numbers.below(1 << 32);
        }
        for device in ["cpu", "gpu0", "gpu1"].iter().take(usize::try_from(numbers.below(4)).unwrap()) {
            let is_call = kind != Kind::Residency;
            record.uses.push(Use {
                device: (*device).into(),
                model: format!("m{}", numbers.below(2)).into(),
                device_ns: if is_call { numbers.below(900_000_000_000) } else { 0 },
                loads: if is_call { numbers.below(3) } else { 0 },
                load_ns: if is_call { numbers.below(9_000_000_000) } else { 0 },
                memory_byte_ms: numbers.below(1 << 52),
                reserved_byte_ms: if is_call { 0 } else { numbers.below(1 << 55) },
                ..Use::default()
            });
        }
        record
    };
    (0..4000).map(record).collect()
}

const COLUMNS: [&str; 13] = [
    "id",
    "outcome",
    "time",
    "tenant",
    "calls",
    "guest_cpu_ns",
    "host_memory_byte_ms",
    "egress_bytes",
    "device",
    "device_ns",
    "memory_byte_ms",
    "reserved_byte_ms",
    "loads",
];

/// The records as `weir usage records --format csv` has them: a row for each use, and what is of the call in the first.
fn raw(records: &[Record]) -> Vec<Vec<String>> {
    let mut rows =
        vec![COLUMNS.iter().map(|name| (*name).to_owned()).chain(["load_ns".to_owned()]).collect()];
    for record in records {
        let none = [Use::default()];
        let uses: &[Use] = if record.uses.is_empty() { &none } else { &record.uses };
        for (index, used) in uses.iter().enumerate() {
            let of_call = |number: u64| if index == 0 { number.to_string() } else { String::new() };
            let outcome = record.outcome.name().to_owned();
            let mut row =
                vec![record.id.clone(), outcome, record.time.to_string(), record.tenant.to_string()];
            row.extend(
                [record.calls, record.guest_cpu_ns, record.host_memory_byte_ms, record.egress_bytes]
                    .map(of_call),
            );
            row.push(used.device.to_string());
            row.extend(
                [used.device_ns, used.memory_byte_ms, used.reserved_byte_ms, used.loads, used.load_ns]
                    .map(|number| number.to_string()),
            );
            rows.push(row);
        }
    }
    rows
}

/// What the independent program says of an invoice.
fn check(folder: &Path, rows: &[Vec<String>], set: &Set, invoice: &Value) -> Output {
    let file = |name: &str, text: String| -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let csv: String = rows.iter().map(|row| row.join(",") + "\n").collect();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/check-invoice.py");
    let mut python = Command::new("python3");
    python.arg(script).arg("--records").arg(file("records.csv", csv));
    let billing = json!({ "versions": set.billing, "rate_cards": set.cards });
    python.arg("--billing").arg(file("billing.json", billing.to_string()));
    python.arg("--credits").arg(file("credits.json", json!({ "credits": set.credits }).to_string()));
    python.arg(file("invoice.json", invoice.to_string())).output().expect("python3 is needed")
}

fn sets() -> [(&'static str, Set); 3] {
    let devices = |cpu: &str, gpu: &str| {
        json!({
            "cpu": { "device_second": cpu, "load_second": "0.00031", "memory_gib_second": "0.0000071" },
            "big": { "device_second": gpu, "reserved_gib_second": "0.000000777" },
            "default": { "device_second": "0.0007", "memory_gib_second": "0.0000113", "load": "0.00013" },
        })
    };
    let calls = json!({
        "million_calls": "123.456", "guest_cpu_second": "0.000023", "host_memory_gib_second": "0.00000333",
        "egress_gib": "0.087",
    });
    let version = |from: &str, cpu: &str, gpu: &str| {
        json!({
            "effective_from": from,
            "classes": { "gpu1": "big" },
            "prices": { "calls": calls, "devices": devices(cpu, gpu) },
        })
    };
    let cards = json!([
        { "name": "default", "currency": "EUR", "versions": [
            version("2026-10-01T00:00:00Z", "0.00003", "0.0011"),
            version("2026-11-10T13:00:00Z", "0.000037", "0.00123456789"),
            version("2026-11-20T00:00:00Z", "0.000029", "0.0009"),
        ] },
        { "name": "gold", "currency": "EUR", "versions": [
            version("2026-11-01T00:00:00Z", "0.00002", "0.0008"),
            { "effective_from": "2026-11-21T05:00:00Z", "prices": { "calls": { "million_calls": "50" } } },
        ] },
    ]);
    let own =
        json!({ "calls": { "egress_gib": "0.05" }, "devices": { "cpu": { "device_second": "0.000011" } } });
    let set = |billing: Value, credits: Value| Set { cards: cards.clone(), billing, credits };
    [
        (
            "acme",
            set(
                json!([
                    { "effective_from": "2026-11-15T06:00:00Z", "prices": own },
                    { "effective_from": "2026-11-18T00:00:00Z", "prices": own },
                    { "effective_from": "2026-11-25T00:00:00Z" },
                ]),
                json!([
                    credit("c2", "100000.00", "2026-12", None),
                    credit("c1", "130.50", "2026-10", Some("2026-11")),
                    credit("c3", "7.77", "2026-11", None),
                ]),
            ),
        ),
        ("bell", set(json!([{ "effective_from": "2026-11-05T03:00:00Z", "rate_card": "gold" }]), json!([]))),
        ("city", set(json!([]), json!([credit("c9", "1000000.00", "2026-11", None)]))),
    ]
}

#[tokio::test]
async fn an_independent_program_computes_the_same_invoices() {
    let records = made_up();
    let (_data, store) = summed(&records).await;
    let (rows, folder) = (raw(&records), tempfile::tempdir().unwrap());
    for (tenant, set) in sets() {
        let invoice = invoice(&store, tenant, "2026-11", &set).await;
        assert!(invoice.lines.len() > 15, "{}", invoice.lines.len());
        let invoice = serde_json::to_value(&invoice).unwrap();
        let agrees = check(folder.path(), &rows, &set, &invoice);
        let said =
            String::from_utf8_lossy(&agrees.stdout).into_owned() + &String::from_utf8_lossy(&agrees.stderr);
        assert!(agrees.status.success(), "{tenant}: {said}\n{invoice:#}");
        assert!(said.starts_with(&format!("The invoice of 2026-11 for {tenant} agrees")), "{said}");
        if tenant == "acme" {
            let used: Vec<&str> = invoice["credits"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["id"].as_str().unwrap())
                .collect();
            assert_eq!(used, ["c3"], "what October left of the other has to be known: {invoice:#}");
        }

        if tenant != "acme" {
            continue;
        }
        // One unit more of one record, whichever it is, and a record that is not there.
        let time = rows[0].iter().position(|name| name == "time").unwrap();
        let month = hour("2026-11-01T00:00:00Z")..hour("2026-12-01T00:00:00Z");
        let of_month =
            |row: &Vec<String>| row[3] == tenant && row[time].parse().is_ok_and(|at| month.contains(&at));
        for (column, name) in rows[0].iter().enumerate().skip(4).filter(|(_, name)| *name != "device") {
            let mut changed = rows.clone();
            let is_counted = |row: &&mut Vec<String>| {
                of_month(row) && row[1] != "refused" && row[column].parse::<u64>().is_ok_and(|n| n > 0)
            };
            let Some(row) = changed.iter_mut().filter(is_counted).nth(3) else { panic!("no {name}") };
            row[column] = (row[column].parse::<u64>().unwrap() + 1).to_string();
            let differs = check(folder.path(), &changed, &set, &invoice);
            assert_eq!(differs.status.code(), Some(1), "{tenant} {name}");
        }
        let mut without = rows.clone();
        let at = without.iter().position(of_month).unwrap();
        without.remove(at);
        assert_eq!(check(folder.path(), &without, &set, &invoice).status.code(), Some(1), "{tenant}");
        let mut dearer = invoice.clone();
        dearer["total"] = json!("0.01");
        assert_eq!(check(folder.path(), &rows, &set, &dearer).status.code(), Some(1), "{tenant}");
    }
}
