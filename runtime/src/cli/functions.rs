//! `weir functions`, `status`, `call` and `delete`

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use futures::StreamExt;
use reqwest::{Body, Method, StatusCode};
use serde_json::Value;

use super::Context;
use super::client::{Failure, broken};
use super::output::{self, Fields, digest, list, size, text};

#[derive(Args)]
pub struct List {}

impl List {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let listed = context.client.list("/v1/functions", "functions").await?;
        if context.json {
            output::json(&listed);
            return Ok(());
        }
        let functions = list(listed.at("functions"));
        if functions.is_empty() {
            output::line("no functions yet: deploy one with `weir deploy NAME COMPONENT`");
            return Ok(());
        }
        output::table(
            ["FUNCTION", "STATE", "CALLS", "FAILURES", "COLD STARTS", "PATH"],
            functions.iter().map(|function| {
                ["function", "state", "calls", "failures", "cold_starts", "url"]
                    .map(|field| text(function.at(field)))
            }),
        );
        Ok(())
    }
}

#[derive(Args)]
pub struct Status {
    /// The function's name
    name: String,
}

impl Status {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let status = context.client.get(&format!("/v1/functions/{}", self.name)).await?;
        if context.json {
            output::json(&status);
            return Ok(());
        }
        output::line(format!("function     {}", text(status.at("function"))));
        output::line(format!("path         {}", text(status.at("url"))));
        output::line(format!("state        {}", text(status.at("state"))));
        if let Some(reason) = status.at("reason").as_str() {
            output::line(format!("reason       {reason}"));
        }
        output::line(format!("calls        {} ({} failed)", status.at("calls"), status.at("failures")));
        output::line(format!("cold starts  {}", status.at("cold_starts")));
        if let Some(header) = status.at("sticky_header").as_str() {
            output::line(format!("sticky by    the header {header}"));
        }
        if let Some(revision) = status.at("rollback_to").as_u64() {
            output::line(format!("rollback to  revision {revision}"));
        }
        output::line("");
        let weight = |revision: &Value| {
            let traffic = list(status.at("traffic"))
                .iter()
                .find(|share| share.at("revision") == revision.at("revision"));
            traffic.map_or("0".to_owned(), |share| text(share.at("weight")))
        };
        let phase = |revision: &Value, phase: &str| {
            revision
                .at("last_cold_start")
                .at(phase)
                .as_f64()
                .map_or("-".to_owned(), |millis| format!("{millis:.1} ms"))
        };
        output::table(
            [
                "REVISION",
                "STATE",
                "WEIGHT",
                "DIGEST",
                "SIZE",
                "COLD STARTS",
                "LAST: CODE",
                "GRAPH",
                "SANDBOX",
                "CREATED",
            ],
            list(status.at("revisions")).iter().map(|revision| {
                [
                    text(revision.at("revision")),
                    text(revision.at("state")),
                    weight(revision),
                    digest(revision.at("digest")),
                    size(revision.at("bytes")),
                    text(revision.at("cold_starts")),
                    phase(revision, "code_ms"),
                    phase(revision, "graph_ms"),
                    phase(revision, "sandbox_ms"),
                    text(revision.at("created")),
                ]
            }),
        );
        Ok(())
    }
}

#[derive(Args)]
pub struct Delete {
    /// The function's name
    name: String,
}

impl Delete {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let path = format!("/v1/functions/{}", self.name);
        context.client.json(context.client.request(Method::DELETE, &path)).await?;
        if !context.json {
            output::line(format!("{} is deleted", self.name));
        }
        Ok(())
    }
}

#[derive(Args)]
pub struct Call {
    /// The function's name
    name: String,
    /// The path, with a query if need be
    #[arg(default_value = "/")]
    path: String,
    /// The method; POST when there is a body, GET otherwise
    #[arg(short = 'X', long, value_name = "METHOD")]
    request: Option<Method>,
    /// A header; may be given more than once
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The body
    #[arg(short, long, conflicts_with = "file")]
    data: Option<String>,
    /// The file that is the body
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Print the answer's status and headers too
    #[arg(short, long)]
    include: bool,
}

impl Call {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let body =
            match (self.data, &self.file) {
                (Some(data), _) => Some(data.into_bytes()),
                (None, Some(path)) => {
                    let read = tokio::fs::read(path).await;
                    Some(read.map_err(|error| {
                        Failure::Usage(format!("{} cannot be read: {error}", path.display()))
                    })?)
                }
                (None, None) => None,
            };
        let method = self.request.unwrap_or(if body.is_some() { Method::POST } else { Method::GET });
        let path = self.path.trim_start_matches('/');
        let mut request =
            context.client.request(method, &format!("/fn/{}/{}/{path}", context.client.tenant(), self.name));
        for header in &self.headers {
            let (name, value) = header
                .split_once(':')
                .ok_or_else(|| Failure::Usage(format!("-H {header}: write NAME: VALUE")))?;
            request = request.header(name.trim(), value.trim());
        }
        if let Some(body) = body {
            request = request.body(Body::from(body));
        }
        let response = context.client.send(request).await?;
        let status = response.status();
        let mut stdout = std::io::stdout();
        let gone = |error: std::io::Error| Failure::Local(format!("the answer cannot be printed: {error}"));
        if self.include {
            writeln!(stdout, "{status}").map_err(gone)?;
            for (name, value) in response.headers() {
                writeln!(stdout, "{name}: {}", String::from_utf8_lossy(value.as_bytes())).map_err(gone)?;
            }
            writeln!(stdout).map_err(gone)?;
        }
        let mut body = response.bytes_stream();
        let mut last = b'\n';
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| broken(&error))?;
            last = piece.last().copied().unwrap_or(last);
            stdout.write_all(&piece).map_err(gone)?;
        }
        if last != b'\n' {
            writeln!(stdout).map_err(gone)?;
        }
        stdout.flush().map_err(gone)?;
        if status.is_success() {
            return Ok(());
        }
        let looked = match (status, context.client.named_tenant()) {
            (StatusCode::NOT_FOUND, None) => {
                let tenant = context.client.tenant();
                format!(
                    "; the call went to the tenant `{tenant}`: name another with --tenant, or WEIR_TENANT"
                )
            }
            _ => String::new(),
        };
        Err(Failure::Local(format!("the answer's status is {status}{looked}")))
    }
}
