//! What was used: sums by time and by what calls have in common, and the records themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::guard::meant;
use super::problem::{Code, Problem};
use super::query::{Asked, PageLimit};
use crate::access::Principal;
use crate::meter::filter::Filter;
use crate::meter::find::{Found, Wish};
use crate::meter::focus::Focus;
use crate::meter::ledger::Position;
use crate::meter::quantities::Named;
use crate::meter::query::{self, BY_MINUTE, Bucket, Dimension, Unanswered, month_of};
use crate::meter::record::{Kind, Outcome, Record, Use};
use crate::meter::totals::{HOUR, Key, QUANTITIES, Sums};
use crate::node::Node;
use crate::store::Enough;
use crate::units;

/// Where the next part of an answer that is no JSON begins.
const NEXT: HeaderName = HeaderName::from_static("weir-next");

/// The query of `GET /v1/usage`.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct UsageQuery {
    /// From when on: RFC 3339. It is taken to the start of its hour; of its minute, by the minute. This month when absent.
    from: Option<String>,
    /// Until when. It is taken to the end of its hour or minute. Now when absent.
    to: Option<String>,
    /// Only what calls of this function used.
    function: Option<String>,
    /// Only what was used with this model.
    model: Option<String>,
    /// Only what calls with the key of this id used.
    key: Option<String>,
    class: Option<String>,
    /// Only what calls with this end used.
    outcome: Option<Outcome>,
    /// Only what was used of this device.
    device: Option<String>,
    /// What it is summed up by, with commas between them: `function,model`.
    by: Option<String>,
    /// By spans of time, in UTC; by the minute up to a day.
    bucket: Option<Bucket>,
    /// The most rows.
    limit: PageLimit,
    /// Rows after these: the `next` of the answer before.
    after: Option<String>,
    format: TableFormat,
}

/// How sums are given.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TableFormat {
    #[default]
    Json,
    /// All rows at once.
    Csv,
    /// What was used with its costs, in the columns of the FinOps Open Cost and Usage Specification, as CSV: by function, device and
    /// model, and by the month if no `bucket` says otherwise.
    Focus,
}

/// Sums of usage.
#[derive(Serialize, JsonSchema)]
pub struct UsageView {
    /// The tenant whose usage it is; none if it is everybody's, and the system's.
    tenant: Option<String>,
    /// RFC 3339.
    from: String,
    to: String,
    rows: Vec<UsageRow>,
    /// The `after` of the next page, if there is one.
    next: Option<String>,
}

/// What was used in a span of time by calls that have these in common.
#[derive(Serialize, JsonSchema)]
struct UsageRow {
    /// Where the span of time begins.
    start: String,
    by: BTreeMap<&'static str, String>,
    /// Quantities as usage records have them; those that are 0 are left out.
    sums: Named,
}

fn invalid(detail: String) -> Problem {
    Problem::new(Code::InvalidRequest, detail)
}

fn moment(field: &str, text: &str) -> Result<u64, Problem> {
    let since =
        humantime::parse_rfc3339_weak(text).ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let millis = since.and_then(|since| u64::try_from(since.as_millis()).ok());
    millis.ok_or_else(|| invalid(format!("{field} is `{text}`; write a time as 2026-12-03T10:00:00Z")))
}

/// The times that are asked for, in whole spans.
fn times(node: &Node, from: Option<&str>, to: Option<&str>, span: u64) -> Result<(u64, u64), Problem> {
    let now = node.meter.now();
    let from = from.map_or(Ok(month_of(now)), |text| moment("from", text))?;
    let to = to.map_or(Ok(now + 1), |text| moment("to", text))?;
    if to <= from {
        return Err(invalid(format!(
            "to is {}, which is not after from, {}",
            units::moment(to),
            units::moment(from)
        )));
    }
    Ok((from / span * span, to.div_ceil(span).saturating_mul(span)))
}

/// Whose usage is asked for; everybody's for an operator who names no tenant.
fn whose(node: &Node, principal: &Principal, headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let tenant = meant(principal, headers)?.map(|tenant| tenant.to_string());
    Ok(if node.access.keys().is_some() { tenant } else { None })
}

fn dimensions(text: &str) -> Result<Vec<Dimension>, Problem> {
    let names = || Dimension::ALL.map(Dimension::name).join(", ");
    text.split(',')
        .map(|name| {
            let found = Dimension::ALL.into_iter().find(|dimension| dimension.name() == name.trim());
            found.ok_or_else(|| invalid(format!("by has `{name}`; it is summed up by {}", names())))
        })
        .collect()
}

impl From<Unanswered> for Problem {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Store(error) => error.into(),
            Unanswered::TooMuch(detail) => invalid(detail),
        }
    }
}

/// `GET /v1/usage`
pub async fn sums(
    State(node): State<Arc<Node>>,
    principal: Principal,
    headers: HeaderMap,
    Asked(query): Asked<UsageQuery>,
) -> Result<Response, Problem> {
    let is_by_minute = query.bucket == Some(Bucket::Minute);
    let span = if is_by_minute { 60_000 } else { HOUR };
    let (from, to) = times(&node, query.from.as_deref(), query.to.as_deref(), span)?;
    if is_by_minute && u128::from(to - from) > BY_MINUTE.as_millis() {
        let most = humantime::format_duration(BY_MINUTE);
        return Err(invalid(format!("by the minute usage is given for {most} at most; name from and to")));
    }
    let tenant = whose(&node, &principal, &headers)?;
    let by = query.by.as_deref().map_or(Ok(Vec::new()), dimensions)?;
    if let TableFormat::Focus = query.format {
        return costs(&node, query, tenant, (from, to)).await;
    }
    let UsageQuery { function, model, key, class, outcome, device, bucket, limit, after, format, .. } = query;
    let filter = Filter { tenant: tenant.clone(), function, key, class, outcome, device, model };
    let wish = Wish { from, to, filter, ..Wish::default() };
    let rows = node.meter.usage(&node.store, &query::Asked { wish, by: by.clone(), bucket }).await?;
    if let TableFormat::Csv = format {
        let table = table(&by, &rows).map_err(|error| Problem::internal(&error))?;
        return Ok(([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], table).into_response());
    }
    let place = |row: &query::Row| format!("{:015}/{}", row.start, row.by.join("/"));
    let mut rows = rows;
    rows.sort_by_cached_key(place);
    let (rows, next) = limit.page(rows, after, place);
    let row = |row: query::Row| UsageRow {
        start: units::moment(row.start),
        by: by.iter().map(|dimension| dimension.name()).zip(row.by).collect(),
        sums: row.sums.named(),
    };
    let rows = rows.into_iter().map(row).collect();
    Ok(Json(UsageView { tenant, from: units::moment(from), to: units::moment(to), rows, next })
        .into_response())
}

/// What was used with its costs. Prices hold by the hour.
async fn costs(
    node: &Node,
    query: UsageQuery,
    tenant: Option<String>,
    (from, to): (u64, u64),
) -> Result<Response, Problem> {
    if query.by.is_some() || query.bucket == Some(Bucket::Minute) {
        return Err(invalid(
            "format=focus has rows of its own: leave out by, and name a bucket of an hour or more".to_owned(),
        ));
    }
    let UsageQuery { function, model, key, class, outcome, device, bucket, .. } = query;
    let filter = Filter { tenant, function, key, class, outcome, device, model };
    let wish = Wish { from, to, filter, ..Wish::default() };
    let (bucket, mut focus) = (bucket.unwrap_or(Bucket::Month), Focus::default());
    let each = |key: Key, sums: Sums| {
        focus.add(bucket.start(key.hour * HOUR), &key, &sums, &node.money.tariff(&key.tenant));
        Enough::No
    };
    node.meter.by_hour(&node.store, &wish, each).await?;
    let table =
        focus.csv(|start| bucket.end(start), units::moment).map_err(|error| Problem::internal(&error))?;
    Ok(([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], table).into_response())
}

fn table(by: &[Dimension], rows: &[query::Row]) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let names = by.iter().map(|dimension| dimension.name());
    let quantities = QUANTITIES.iter().map(|quantity| quantity.name);
    writer.write_record(["start"].into_iter().chain(names).chain(quantities))?;
    for row in rows {
        let sums = row.sums.values().map(|sum| sum.to_string());
        writer.write_record([units::moment(row.start)].iter().chain(&row.by).chain(&sums))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// The query of `GET /v1/usage/records`.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct RecordQuery {
    /// From when on: RFC 3339. This month when absent.
    from: Option<String>,
    /// Until when. Now when absent.
    to: Option<String>,
    function: Option<String>,
    /// Records of calls that used this model.
    model: Option<String>,
    key: Option<String>,
    kind: Option<Kind>,
    class: Option<String>,
    outcome: Option<Outcome>,
    /// Records of calls that used this device.
    device: Option<String>,
    /// The record of this id: what an answer's `weir-call` says.
    id: Option<String>,
    /// The records of this trace: 32 hex digits.
    trace: Option<String>,
    /// The most records.
    limit: PageLimit,
    /// Records after these: the `next` of the answer before, or its header `weir-next`.
    after: Option<String>,
    format: RecordFormat,
}

/// How records are given.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecordFormat {
    #[default]
    Json,
    /// One a line, as they are in the log: `weir usage verify` looks at such a file.
    Jsonl,
    /// A row for each device and model that a call used, or one. What is of the call as a whole is in its first row.
    Csv,
}

/// Usage records, oldest first.
#[derive(Serialize, JsonSchema)]
pub struct RecordList {
    records: Vec<RecordLine>,
    /// The `after` of the next part, if there may be one. A part may have none and yet another after it.
    next: Option<String>,
}

/// A record with its place in its tenant's chain.
#[derive(Serialize, JsonSchema)]
struct RecordLine {
    seq: u64,
    /// SHA-256, in hex, over the hash before and the record's bytes.
    hash: String,
    /// The record, byte for byte as it was hashed.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    record: Box<RawValue>,
}

fn position(text: &str) -> Result<Position, Problem> {
    let parsed = text.split_once('-').and_then(|(segment, offset)| {
        Some(Position { segment: segment.parse().ok()?, offset: offset.parse().ok()? })
    });
    parsed.ok_or_else(|| invalid(format!("after is `{text}`; it must be what an answer gave as next")))
}

/// `GET /v1/usage/records`
pub async fn records(
    State(node): State<Arc<Node>>,
    principal: Principal,
    headers: HeaderMap,
    Asked(query): Asked<RecordQuery>,
) -> Result<Response, Problem> {
    let (from, to) = times(&node, query.from.as_deref(), query.to.as_deref(), 1)?;
    let tenant = whose(&node, &principal, &headers)?;
    let after = query.after.as_deref().map_or(Ok(Position::default()), position)?;
    let RecordQuery { function, model, key, kind, class, outcome, device, id, trace, limit, format, .. } =
        query;
    let filter = Filter { tenant, function, key, class, outcome, device, model };
    let wish = Wish { from, to, filter, kind, id, trace };
    let part = node.meter.find(wish, after, limit.most()).await?;
    let next = part.next.map(|next| format!("{}-{}", next.segment, next.offset));
    let line = |found: Found| RecordLine { seq: found.seq, hash: found.hash, record: found.text };
    let (kind, body) = match format {
        RecordFormat::Json => {
            let records = part.found.into_iter().map(line).collect();
            return Ok(Json(RecordList { records, next }).into_response());
        }
        RecordFormat::Jsonl => {
            let lines = part
                .found
                .into_iter()
                .map(|found| serde_json::to_string(&line(found)).map(|line| line + "\n"));
            (
                "application/jsonl",
                lines.collect::<Result<String, _>>().map_err(|error| Problem::internal(&error.into()))?,
            )
        }
        RecordFormat::Csv => {
            let rows = rows(&part.found, query.after.is_none()).map_err(|error| Problem::internal(&error))?;
            ("text/csv; charset=utf-8", rows)
        }
    };
    let mut response = ([(header::CONTENT_TYPE, kind)], body).into_response();
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        response.headers_mut().insert(NEXT, next);
    }
    Ok(response)
}

/// Records as a table; with its head, if it is the first part.
fn rows(found: &[Found], with_head: bool) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let texts = [
        "id", "time", "tenant", "kind", "function", "revision", "key", "class", "outcome", "code", "status",
        "trace", "device", "model",
    ];
    if with_head {
        writer.write_record(texts.into_iter().chain(QUANTITIES.iter().map(|quantity| quantity.name)))?;
    }
    for Found { record, .. } in found {
        let none = [Use::default()];
        let uses = if record.uses.is_empty() { &none[..] } else { &record.uses };
        for (at, used) in uses.iter().enumerate() {
            let mut sums = Sums::default();
            if at == 0 {
                sums.add_call(record);
            }
            sums.add_use(used);
            writer.write_record(
                texts_of(record, used).iter().chain(&sums.values().map(|value| value.to_string())),
            )?;
        }
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

fn texts_of(record: &Record, used: &Use) -> [String; 14] {
    let text = |text: &Option<Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
    [
        record.id.clone(),
        record.time.to_string(),
        record.tenant.to_string(),
        record.kind.name().to_owned(),
        text(&record.function),
        record.revision.to_string(),
        text(&record.key),
        text(&record.class),
        record.outcome.name().to_owned(),
        text(&record.code),
        record.status.to_string(),
        text(&record.trace),
        used.device.to_string(),
        used.model.to_string(),
    ]
}
