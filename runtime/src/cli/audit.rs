//! `weir audit`

use clap::{Args, Subcommand};
use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use weir::audit::{Entry, Verifier};

use super::Context;
use super::client::Failure;
use super::output;

#[derive(Args)]
pub struct Audit {
    #[command(subcommand)]
    action: Option<Action>,
    /// How many of the newest entries to show: 1 to 1000
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Only what was asked by the key with this id
    #[arg(long, value_name = "KEY", value_parser = super::keys::id)]
    by: Option<String>,
}

#[derive(Subcommand)]
enum Action {
    /// Read the whole log and see that nothing was altered, left out or inserted
    Verify {
        /// An entry that was noted before, as `weir audit verify` prints it
        #[arg(long, value_name = "NUMBER:HASH", value_parser = noted)]
        head: Option<(i64, String)>,
    },
}

fn noted(text: &str) -> Result<(i64, String), String> {
    let (number, hash) = text.split_once(':').ok_or("write NUMBER:HASH")?;
    let number = number.parse().map_err(|_| format!("`{number}` is no number"))?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { Ok((number, hash.to_lowercase())) } else { Err(format!("`{hash}` is no SHA-256 in hex")) }
}

/// What the server answers.
#[derive(Deserialize)]
struct Part {
    tenant: Option<String>,
    entries: Vec<Line>,
    next: Option<i64>,
}

#[derive(Deserialize)]
struct Line {
    entry: Box<RawValue>,
    hash: String,
}

impl Audit {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self.action {
            Some(Action::Verify { head }) => verify(context, head).await,
            None => {
                let by = self.by.map(|key| format!("&key={key}")).unwrap_or_default();
                let path = format!("/v1/audit?limit={}{by}", self.limit);
                if context.json {
                    output::json(&context.client.get(&path).await?);
                } else {
                    table(&part(context, &path).await?)?;
                }
                Ok(())
            }
        }
    }
}

async fn part(context: &Context, path: &str) -> Result<Part, Failure> {
    let response = context.client.send(context.client.request(Method::GET, path)).await?;
    if !response.status().is_success() {
        return Err(context.client.refusal(response).await);
    }
    let body = response.bytes().await.map_err(|error| super::client::broken(&error))?;
    serde_json::from_slice(&body)
        .map_err(|error| Failure::Local(format!("the answer is not understood: {error}")))
}

async fn verify(context: &Context, noted: Option<(i64, String)>) -> Result<(), Failure> {
    let mut verifier = Verifier::default();
    let mut after = Some(0);
    while let Some(from) = after {
        let part = part(context, &format!("/v1/audit?limit=1000&after={from}")).await?;
        if let Some(tenant) = part.tenant {
            let says = "only the whole log can be verified, with an operator's key and no --tenant";
            return Err(Failure::Usage(format!("these are the entries of tenant `{tenant}` alone: {says}")));
        }
        for Line { entry, hash } in part.entries {
            verifier.next(entry.get(), &hash).map_err(Failure::Local)?;
            if let Some((number, noted)) = &noted
                && *number == verifier.entries
                && *noted != hash
            {
                return Err(Failure::Local(format!("entry {number} is another than the one that was noted")));
            }
        }
        after = part.next;
    }
    if let Some((number, _)) = noted
        && number > verifier.entries
    {
        let entries = verifier.entries;
        return Err(Failure::Local(format!("entry {number} was noted, and the log ends at {entries}")));
    }
    if context.json {
        output::json(&serde_json::json!({ "entries": verifier.entries, "head": verifier.head }));
    } else {
        eprintln!("{} entries, each as it was written; the newest is", verifier.entries);
        output::line(format!("{}:{}", verifier.entries, verifier.head));
    }
    Ok(())
}

fn table(part: &Part) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for line in &part.entries {
        let entry: Entry = serde_json::from_str(line.entry.get())
            .map_err(|error| Failure::Local(format!("an entry is not understood: {error}")))?;
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        rows.push([
            entry.number.to_string(),
            entry.at,
            or_none(entry.tenant),
            or_none(entry.key),
            or_none(entry.role.map(|role| role.name().to_owned())),
            or_none(entry.from.map(|from| from.to_string())),
            entry.request,
            entry.outcome,
        ]);
    }
    output::table(["NUMBER", "AT", "TENANT", "KEY", "ROLE", "FROM", "REQUEST", "OUTCOME"], rows);
    Ok(())
}
