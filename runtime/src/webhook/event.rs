//! An event: what a tenant has used in an hour, as CloudEvents has it, and how it is signed.
//!
//! Sources: CloudEvents 1.0.2, JSON format and HTTP binding in structured mode; Standard Webhooks 1.0.0 for the signature.

use std::path::Path;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde::Serialize;

use crate::meter::quantities::Named;
use crate::meter::query::Dimension;
use crate::meter::totals::{HOUR, Key, Sums};
use crate::units::moment;

/// What events are of.
const TYPE: &str = "weir.usage.hour.v1";
/// What a secret begins with.
const PREFIX: &str = "whsec_";

/// What a tenant has used in an hour, or a part of that.
#[derive(Debug, Serialize)]
pub struct Event<'a> {
    specversion: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    source: String,
    /// The same for the same hour, tenant and part, however often it is sent.
    pub id: String,
    /// The hour's end.
    time: String,
    /// The tenant.
    subject: &'a str,
    datacontenttype: &'static str,
    data: Data<'a>,
}

#[derive(Debug, Serialize)]
struct Data<'a> {
    tenant: &'a str,
    from: String,
    to: String,
    /// From 1 on.
    part: usize,
    parts: usize,
    rows: Vec<Row>,
}

/// Sums of what calls have used that have these in common.
#[derive(Debug, Serialize)]
struct Row {
    by: std::collections::BTreeMap<&'static str, String>,
    /// Quantities as usage records have them; those that are 0 are left out.
    sums: Named,
}

/// The events of an hour of a tenant, of so many rows each at most. `source` says which server's they are.
pub fn events<'a>(
    source: &str,
    hour: u64,
    tenant: &'a str,
    rows: &[(Key, Sums)],
    most: usize,
) -> Vec<Event<'a>> {
    let (from, to) = (moment(hour * HOUR), moment((hour + 1) * HOUR));
    let parts = rows.chunks(most.max(1));
    let count = parts.len();
    let event = |(part, rows): (usize, &[(Key, Sums)])| Event {
        specversion: "1.0",
        kind: TYPE,
        source: format!("urn:weir:{source}"),
        id: format!("{from}/{tenant}/{part}"),
        time: to.clone(),
        subject: tenant,
        datacontenttype: "application/json",
        data: Data {
            tenant,
            from: from.clone(),
            to: to.clone(),
            part,
            parts: count,
            rows: rows.iter().map(|(key, sums)| row(key, sums)).collect(),
        },
    };
    (1..).zip(parts).map(event).collect()
}

fn row(key: &Key, sums: &Sums) -> Row {
    let by = Dimension::ALL.into_iter().filter(|dimension| *dimension != Dimension::Tenant);
    let by = by.map(|dimension| (dimension.name(), dimension.of(key)));
    Row { by: by.filter(|(_, text)| !text.is_empty()).collect(), sums: sums.named() }
}

/// Signs what is sent.
pub struct Signer(hmac::Key);

impl Signer {
    /// One with the secret of a file.
    ///
    /// # Errors
    /// A file that cannot be read, or has no secret in it. What it has is not shown.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let shown = file.display();
        let text = std::fs::read_to_string(file).with_context(|| format!("webhook.secret_file: {shown}"))?;
        let secret = text.trim().strip_prefix(PREFIX).and_then(|text| STANDARD.decode(text).ok());
        let secret = secret.filter(|secret| (24..=64).contains(&secret.len()));
        let secret = secret.with_context(|| {
            format!("webhook.secret_file: {shown} must have `{PREFIX}` and 24 to 64 bytes in base64")
        })?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &secret)))
    }

    /// The value of `webhook-signature` for a body with these id and time, in seconds since 1970.
    pub fn sign(&self, id: &str, time: u64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(format!("{id}.{time}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    }
}
