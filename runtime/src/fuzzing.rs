//! Doors for the fuzz targets in `fuzz/`, to what reads outside bytes in this process. Only there when fuzzing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use axum::body::Body;
use axum::response::IntoResponse;
use http::Request;
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::config::Settings;
use crate::function::FunctionConfig;
use crate::http::problem::{Code, Problem};
use crate::node::Node;
use crate::sandbox::{artifact, wasi_nn};

/// A guest's tensor on its way to a model: bytes per element, and elements, where it is one.
///
/// # Errors
/// When it is none.
pub fn tensor(
    ty: u8,
    shape: &[u32],
    data: &[u8],
    wants_bool: bool,
) -> Result<(usize, usize), weir_gpu::Error> {
    let tensor = wasi_nn::fuzz_tensor(ty, shape, data, wants_bool)?;
    Ok((tensor.dtype().size(), tensor.shape().iter().product()))
}

/// A function's configuration as text.
pub fn config(text: &[u8]) {
    let Ok(config) = serde_json::from_slice::<FunctionConfig>(text) else { return };
    let _ = config.check(&Settings::default());
    let written = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<FunctionConfig>(&written).unwrap(), config);
}

/// A problem with this sentence.
pub fn problem(code: u8, detail: String) {
    let code = Code::ALL[usize::from(code) % Code::ALL.len()];
    let response = Problem::new(code, detail.clone()).into_response();
    let status = response.status().as_u16();
    let body = runtime().block_on(response.into_body().collect()).unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (body["status"].as_u64(), body["detail"].as_str()),
        (Some(status.into()), Some(detail.as_str()))
    );
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// The control routes of a server whose uploads are opened by a process that says nothing.
pub struct Routes {
    runtime: tokio::runtime::Runtime,
    router: axum::Router,
    _data: tempfile::TempDir,
}

impl Default for Routes {
    fn default() -> Self {
        let runtime = runtime();
        let data = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.sandbox.sandboxes = std::num::NonZeroU32::MIN;
        settings.limits.memory = crate::units::Size::mib(64);
        let config = crate::Config {
            listen: ([127, 0, 0, 1], 0).into(),
            data_dir: data.path().to_owned(),
            binary: "/bin/false".into(),
            settings,
            dev: true,
            new_operator_key: false,
            tls: None,
            policy: crate::policy::Policy::default(),
        };
        let node = runtime.block_on(Node::open(&config)).unwrap();
        Self { runtime, router: crate::http::router(node).0, _data: data }
    }
}

impl Routes {
    pub fn new() -> Self {
        Self::default()
    }

    /// The status of a request: which route, the name in it, the body's type, and the body.
    pub fn ask(&self, route: u8, name: &str, kind: &str, body: &[u8]) -> u16 {
        let (method, path) = match route % 8 {
            0 => ("POST", format!("/v1/functions/{name}/revisions")),
            1 => ("PUT", format!("/v1/functions/{name}/traffic")),
            2 => ("GET", format!("/v1/functions/{name}/logs")),
            3 => ("PUT", format!("/v1/models/{name}?format=onnx")),
            4 => ("DELETE", format!("/v1/models/{name}")),
            5 => ("GET", format!("/v1/functions/{name}")),
            6 => ("POST", format!("/fn/default/{name}")),
            _ => ("GET", format!("/{name}")),
        };
        let kind = if route < 128 { "multipart/form-data; boundary=x" } else { kind };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let Ok(request) = request.body(Body::from(body.to_vec())) else { return 0 };
        let response = self.runtime.block_on(self.router.clone().oneshot(request)).unwrap();
        response.status().as_u16()
    }
}

/// An artifact of this server's, to be changed.
pub struct Artifact {
    engine: wasmtime::Engine,
    artifacts: artifact::Artifacts,
    code: Vec<u8>,
    mac: Vec<u8>,
    _folder: tempfile::TempDir,
}

impl Default for Artifact {
    fn default() -> Self {
        use std::io::Write;
        let (folder, engine) = (tempfile::tempdir().unwrap(), wasmtime::Engine::default());
        let artifacts = artifact::Artifacts::open(folder.path().to_owned(), &engine, [7; 32]).unwrap();
        let code = engine.precompile_component(b"\0asm\x0d\0\x01\0").unwrap();
        let mut draft = artifacts.draft("d").unwrap();
        draft.write_all(&code).unwrap();
        artifacts.keep(draft).unwrap();
        let mac = std::fs::read(artifacts.mac("d")).unwrap();
        Self { engine, artifacts, code, mac, _folder: folder }
    }
}

impl Artifact {
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes the code at some places and the MAC as a whole, and tries to map it.
    pub fn change(&self, changes: &[(u16, u8)], mac: &[u8], cut: bool) {
        let mut code = self.code.clone();
        for (at, bits) in changes {
            let at = usize::from(*at) % code.len();
            code[at] ^= bits;
        }
        if cut {
            code.truncate(code.len() / 2);
        }
        let mac = if mac.is_empty() { &self.mac } else { mac };
        std::fs::write(self.artifacts.code("d"), &code).unwrap();
        std::fs::write(self.artifacts.mac("d"), mac).unwrap();
        let mapped = self.artifacts.map(&self.engine, "d").unwrap().is_some();
        assert_eq!(mapped, code == self.code && mac == self.mac);
    }
}
