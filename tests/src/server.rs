//! A server in this process, with a data directory and a port of its own.

use std::path::Path;
use std::sync::Arc;

use crate::client::metric;
use bytes::Bytes;
use reqwest::multipart::{Form, Part};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use weir::config::{GpuMode, Settings};
use weir::policy::Policy;
use weir::{Config, Weir};

pub struct Server {
    pub client: Client,
    pub address: std::net::SocketAddr,
    pub devices: weir_gpu::Service,
    /// Methods and paths of all that it serves.
    pub routes: Vec<(&'static str, &'static str)>,
    pub data: Arc<TempDir>,
    /// What has become of what was to be exported.
    pub exported: Option<Arc<weir::Counts>>,
    stop: Option<oneshot::Sender<()>>,
    serving: tokio::task::JoinHandle<()>,
}

/// A status, a body, and the body as JSON if it is some.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Bytes,
    pub json: Value,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The problem's code.
    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or("(no problem)")
    }
}

impl Server {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// A server whose settings are changed from their defaults.
    pub async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), Self::settings(change)).await
    }

    /// A server that asks for keys, with the operator's.
    pub async fn with_keys() -> (Self, String) {
        Self::with_keys_and(|_| {}).await
    }

    /// The same with settings that are changed from their defaults.
    pub async fn with_keys_and(change: impl FnOnce(&mut Settings)) -> (Self, String) {
        let data = Arc::new(tempfile::tempdir().unwrap());
        let server = Self::start_on(Arc::clone(&data), Self::settings(change), false).await;
        let key = std::fs::read_to_string(data.path().join("operator.key")).unwrap();
        (server, key.trim().to_owned())
    }

    /// A server with an operator's policy, on a data directory that may have things in it.
    pub async fn with_policy(data: Arc<TempDir>, policy: &str) -> Self {
        Self::start_with(data, Self::settings(|_| {}), true, Policy::parse(policy).unwrap()).await
    }

    /// The same on a data directory that may have things in it.
    pub async fn with_keys_on(data: Arc<TempDir>) -> Self {
        Self::start_on(data, Self::settings(|_| {}), false).await
    }

    fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
        let mut settings = Settings::default();
        // Address space is finite, and suites run many servers in one process.
        settings.sandbox.sandboxes = 200.try_into().unwrap();
        // What the suite shows is shown on the cores, whatever the machine has besides.
        settings.gpu.mode = GpuMode::Off;
        change(&mut settings);
        settings
    }

    /// A server on a data directory that may have things in it.
    pub async fn on(data: Arc<TempDir>, settings: Settings) -> Self {
        Self::start_on(data, settings, true).await
    }

    async fn start_on(data: Arc<TempDir>, settings: Settings, dev: bool) -> Self {
        Self::start_with(data, settings, dev, Policy::default()).await
    }

    async fn start_with(data: Arc<TempDir>, settings: Settings, dev: bool, policy: Policy) -> Self {
        let config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            data_dir: data.path().to_owned(),
            binary: crate::Process::binary("weir"),
            settings,
            dev,
            new_operator_key: false,
            tls: None,
            policy,
        };
        let weir = Weir::build(&config).await.unwrap();
        let (address, devices) = (weir.address(), weir.devices());
        let (routes, exported) = (weir.routes().to_vec(), weir.exported());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move { weir.serve(async { drop(stopped.await) }).await });
        let client = Client::builder().no_proxy().build().unwrap();
        Self { client, address, devices, routes, data, exported, stop: Some(stop), serving }
    }

    /// Stops, and waits until it has.
    pub async fn stop(mut self) -> Arc<TempDir> {
        drop(self.stop.take());
        drop(self.client);
        self.serving.await.unwrap();
        self.data
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    pub async fn send(&self, request: RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await.unwrap();
        let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Answer { status, headers, body, json }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::PUT, path).json(&body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    pub async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        self.send(self.request(Method::POST, path).body(body)).await
    }

    /// Uploads a component from its file.
    pub async fn deploy(&self, name: &str, component: impl AsRef<Path>, config: Value) -> Answer {
        let bytes = std::fs::read(component).unwrap();
        self.deploy_bytes(name, bytes, config).await
    }

    pub async fn deploy_bytes(&self, name: &str, component: Vec<u8>, config: Value) -> Answer {
        let form = Form::new().text("config", config.to_string()).part("component", Part::bytes(component));
        let path = format!("/v1/functions/{name}/revisions");
        self.send(self.request(Method::POST, &path).multipart(form)).await
    }

    pub async fn put_model(&self, name: &str, bytes: Vec<u8>) -> Answer {
        let path = format!("/v1/models/{name}?format=onnx");
        self.send(self.request(Method::PUT, &path).body(bytes)).await
    }

    /// Calls a function with a body.
    pub async fn call(&self, function: &str, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        self.post(&format!("/fn/default/{function}{path}"), body).await
    }

    pub async fn status(&self, function: &str) -> Value {
        self.get(&format!("/v1/functions/{function}")).await.json
    }

    /// Drives the guest `nn`: runs a model on inputs.
    pub async fn run(&self, function: &str, model: &str, inputs: Value) -> Value {
        let body = json!({ "model": model, "inputs": inputs }).to_string();
        self.call(function, "/run", body).await.json
    }

    /// A metric's value: see [`metric`].
    pub async fn metric(&self, name: &str) -> f64 {
        metric(&self.get("/metrics").await.text(), name)
    }

    pub async fn log(&self, function: &str) -> Vec<String> {
        let lines = self.get(&format!("/v1/functions/{function}/logs?tail=10000")).await;
        lines.json["lines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["text"].as_str().unwrap().to_owned())
            .collect()
    }
}
