//! The client side of the HTTP surface, and what can go wrong there.

use std::path::Path;
use std::process::ExitCode;

use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::header::RETRY_AFTER;
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio::fs::File;
use tokio_util::io::ReaderStream;

use super::output::{self, Fields};
use super::unreachable::{chain, why};

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// Something of this machine that failed, or an answer that is none.
    Local(String),
    /// The server's refusal, and the problem as it came, for who asked for JSON.
    Refused { says: String, problem: Option<Value> },
    /// The command's words are off.
    Usage(String),
    /// There is no server, or it does not answer.
    Unreachable(String),
}

impl Failure {
    /// Says what happened and gives the exit code for it.
    pub fn report(self) -> ExitCode {
        let (text, code) = match self {
            Self::Local(text) => (text, 1),
            Self::Refused { says, problem } => {
                if let Some(problem) = problem {
                    output::json(&problem);
                }
                (says, 1)
            }
            Self::Usage(text) => (text, 2),
            Self::Unreachable(text) => (text, 3),
        };
        eprintln!("weir: {text}");
        ExitCode::from(code)
    }
}

pub struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
    tenant: Option<String>,
    json: bool,
}

impl Client {
    pub fn new(
        url: &str,
        token: Option<&str>,
        tenant: Option<&str>,
        ca: Option<&Path>,
        json: bool,
    ) -> Result<Self, Failure> {
        let url = url.trim_end_matches('/');
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let says = "write http://HOST:PORT or https://HOST:PORT";
            return Err(Failure::Usage(format!("`{url}` is not a server's address; {says}")));
        }
        let mut http = reqwest::Client::builder().no_proxy();
        if let Some(file) = ca {
            let unread = |error: &dyn std::fmt::Display| {
                Failure::Usage(format!("{} cannot be used: {error}", file.display()))
            };
            let pem = std::fs::read(file).map_err(|error| unread(&error))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| unread(&error))?;
            if certificates.is_empty() {
                return Err(unread(&"it has no certificate in it"));
            }
            for certificate in certificates {
                http = http.add_root_certificate(certificate);
            }
        }
        let http =
            http.build().map_err(|error| Failure::Local(format!("no HTTP client can be made: {error}")))?;
        let (token, tenant) = (token.map(str::to_owned), tenant.map(str::to_owned));
        Ok(Self { http, url: url.to_owned(), token, tenant, json })
    }

    /// The tenant that was named, if one was.
    pub fn named_tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The tenant whose functions are called.
    pub fn tenant(&self) -> &str {
        self.named_tenant().unwrap_or(weir::DEV_TENANT)
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        match &self.tenant {
            Some(tenant) => request.header("weir-tenant", tenant),
            None => request,
        }
    }

    /// Sends a request and gives back whatever the server answers.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        request.send().await.map_err(|error| {
            if error.is_builder() {
                return Failure::Usage(format!("the request cannot be made: {}", chain(&error)));
            }
            Failure::Unreachable(why(&self.url, &error))
        })
    }

    /// Sends a request and gives back the server's JSON; a problem becomes a failure.
    pub async fn json(&self, request: RequestBuilder) -> Result<Value, Failure> {
        Ok(self.answer(request).await?.1)
    }

    /// The same, with the answer's status.
    pub async fn answer(&self, request: RequestBuilder) -> Result<(StatusCode, Value), Failure> {
        let response = self.send(request).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(self.refusal(response).await);
        }
        let body = response.bytes().await.map_err(|error| broken(&error))?;
        if body.is_empty() {
            return Ok((status, Value::Null));
        }
        serde_json::from_slice(&body)
            .map(|answer| (status, answer))
            .map_err(|_| Failure::Local(format!("{} answered, but not as a Weir server does", self.url)))
    }

    /// All of a list, page by page, as if it were one: what is in the field `things` of each.
    pub async fn list(&self, path: &str, things: &str) -> Result<Value, Failure> {
        let mut whole = self.get(&format!("{path}?limit=1000")).await?;
        while let Some(next) = whole.as_object_mut().and_then(|fields| fields.remove("next")) {
            let request = self.request(Method::GET, path);
            let request = request.query(&[("limit", "1000"), ("after", next.as_str().unwrap_or_default())]);
            let mut page = self.json(request).await?;
            let more = page.get_mut(things).map(Value::take);
            if let (Some(Value::Array(all)), Some(Value::Array(more))) = (whole.get_mut(things), more) {
                all.extend(more);
            }
            if let (Some(fields), Some(next)) = (whole.as_object_mut(), page.get_mut("next")) {
                fields.insert("next".to_owned(), next.take());
            }
        }
        Ok(whole)
    }

    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.json(self.request(Method::GET, path)).await
    }

    /// What the server said, as a sentence; with `--json` its problem too.
    pub async fn refusal(&self, response: Response) -> Failure {
        let status = response.status();
        let later =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let body = response.bytes().await.unwrap_or_default();
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (Some(detail), Some(code)) = (problem.at("detail").as_str(), problem.at("code").as_str()) else {
            let body = String::from_utf8_lossy(&body);
            return Failure::Local(format!("the server answered {status}: {body}"));
        };
        // The server speaks of its header; here it is a flag that sets it.
        let detail = detail.replace("in the header `weir-tenant`", "with --tenant, or WEIR_TENANT");
        let later = later.map_or(String::new(), |seconds| format!("; try again in {seconds} s"));
        let says = format!("{detail} ({code}){later}");
        Failure::Refused { says, problem: self.json.then_some(problem) }
    }
}

pub fn broken(error: &reqwest::Error) -> Failure {
    Failure::Unreachable(format!("the answer broke off: {}", chain(error)))
}

/// A file on its way to the server, with a bar that shows how far it is.
pub struct Upload {
    pub bytes: u64,
    bar: ProgressBar,
    file: File,
}

impl Upload {
    pub async fn open(path: &Path) -> Result<Self, Failure> {
        let cannot =
            |error: std::io::Error| Failure::Usage(format!("{} cannot be read: {error}", path.display()));
        let file = File::open(path).await.map_err(cannot)?;
        let about = file.metadata().await.map_err(cannot)?;
        if about.is_dir() {
            return Err(Failure::Usage(format!("{} is a folder, not a file", path.display())));
        }
        let bar = ProgressBar::new(about.len());
        if let Ok(style) = ProgressStyle::with_template("{msg:>9} {bar:30} {bytes}/{total_bytes}") {
            bar.set_style(style);
        }
        bar.set_message("uploading");
        Ok(Self { bytes: about.len(), bar, file })
    }

    /// The body, and the bar: when the last byte has gone it shows that the server is busy with `then`.
    pub fn body(self, then: &'static str) -> (Body, ProgressBar) {
        let bar = self.bar.clone();
        let total = self.bytes;
        let sent = move |piece: Bytes| {
            bar.inc(piece.len() as u64);
            if bar.position() >= total {
                if let Ok(style) = ProgressStyle::with_template("{msg:>9} {spinner} {elapsed}") {
                    bar.set_style(style);
                }
                bar.set_message(then);
                bar.enable_steady_tick(std::time::Duration::from_millis(100));
            }
            piece
        };
        let stream: std::pin::Pin<Box<dyn Stream<Item = std::io::Result<Bytes>> + Send + Sync>> =
            Box::pin(ReaderStream::with_capacity(self.file, 64 << 10).map_ok(sent));
        (Body::wrap_stream(stream), self.bar)
    }
}
