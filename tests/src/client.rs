//! What a test asks of a server process, by its URL.

use std::time::Duration;

use reqwest::multipart::{Form, Part};
use reqwest::{Body, Method, RequestBuilder};
use serde_json::{Value, json};

use crate::Answer;

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
}

/// What came of a call, broken connections included.
#[derive(Debug)]
pub enum Heard {
    Whole(Answer),
    /// The connection was closed before all of the answer had come. Its head is missing where the body broke off at once.
    BrokenOff {
        status: Option<u16>,
        bytes: usize,
    },
    /// There was no connection, or no end: the server is gone or hangs.
    Nothing(String),
}

impl Heard {
    /// No whole answer.
    fn without(error: &reqwest::Error, status: Option<u16>, bytes: usize) -> Self {
        if error.is_connect() || error.is_timeout() {
            return Self::Nothing(format!("{error:?}"));
        }
        Self::BrokenOff { status, bytes }
    }
}

impl Client {
    /// No answer of these tests takes a minute: one that hangs is an error with a name.
    pub fn new(url: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap();
        Self { http, url: url.to_owned() }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    /// Sends a request and waits for all of its answer.
    pub async fn hear(&self, request: RequestBuilder) -> Heard {
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Heard::without(&error, None, 0),
        };
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = vec![];
        loop {
            match response.chunk().await {
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => break,
                Err(error) => return Heard::without(&error, Some(status), body.len()),
            }
        }
        let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Heard::Whole(Answer { status, headers, body: body.into(), json })
    }

    /// As [`Self::hear`], where anything but a whole answer is the test's failure.
    pub async fn send(&self, request: RequestBuilder) -> Answer {
        match self.hear(request).await {
            Heard::Whole(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::PUT, path).json(body)).await
    }

    pub async fn deploy(&self, name: &str, component: Vec<u8>, config: &Value) -> Answer {
        self.send(self.deploying(name, component, config)).await
    }

    pub fn deploying(&self, name: &str, component: Vec<u8>, config: &Value) -> RequestBuilder {
        let form = Form::new().text("config", config.to_string()).part("component", Part::bytes(component));
        self.request(Method::POST, &format!("/v1/functions/{name}/revisions")).multipart(form)
    }

    pub async fn delete(&self, name: &str) -> Answer {
        self.send(self.request(Method::DELETE, &format!("/v1/functions/{name}"))).await
    }

    pub async fn put_model(&self, name: &str, bytes: Vec<u8>) -> Answer {
        let path = format!("/v1/models/{name}?format=onnx");
        self.send(self.request(Method::PUT, &path).body(bytes)).await
    }

    /// A call of a function.
    pub fn call(&self, function: &str, path: &str, body: impl Into<Body>) -> RequestBuilder {
        self.request(Method::POST, &format!("/fn/default/{function}{path}")).body(body)
    }

    /// Drives the guest `nn`: runs a model on inputs.
    pub async fn run(&self, function: &str, model: &str, inputs: Value) -> Heard {
        let body = json!({ "model": model, "inputs": inputs }).to_string();
        self.hear(self.call(function, "/run", body)).await
    }

    /// A metric's value: see [`metric`].
    pub async fn metric(&self, name: &str) -> f64 {
        metric(&self.get("/metrics").await.text(), name)
    }

    /// The metrics of this list that are not zero: what a server at rest has none of.
    pub async fn not_zero(&self, names: &[&str]) -> Vec<String> {
        let text = self.get("/metrics").await.text();
        let value = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            let named = names.iter().any(|wanted| name.split('{').next() == Some(*wanted));
            (named && value.parse() != Ok(0.0)).then(|| line.to_owned())
        };
        text.lines().filter(|line| !line.starts_with('#')).filter_map(value).collect()
    }
}

/// The sum of all series of a metric that have these labels, `name{label="value"}`, and maybe others; 0 if there is none.
pub fn metric(text: &str, name: &str) -> f64 {
    let parts = |series: &str| -> (String, Vec<String>) {
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
        (name.to_owned(), labels.map(str::to_owned).collect())
    };
    let (wanted, labels) = parts(name);
    let value = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, has) = parts(series);
        let is_it = name == wanted && labels.iter().all(|label| has.contains(label));
        is_it.then(|| value.parse::<f64>().unwrap())
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(value).sum()
}
