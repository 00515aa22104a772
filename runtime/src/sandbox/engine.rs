//! The one wasmtime engine: its settings, its linker, and what it asks of a component.
//!
//! Sandboxes come from a pool of slots whose memory stays resident, so that a start costs microseconds and the most
//! that all sandboxes together can use is known. A ticker advances the engine's epoch, at which a spinning guest
//! yields its thread, so that timeouts reach it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmtime::component::{Component, InstancePre, Linker};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};
use wasmtime_wasi_http::handler::ProxyPre;
use wasmtime_wasi_http::{p2, p3};

use super::artifact::Artifacts;
use super::store::Host;
use super::wasi_nn;
use crate::config::SandboxConfig;

/// Compiles components and links them to the host.
pub struct Compiler {
    engine: Engine,
    linker: Linker<Host>,
    artifacts: Artifacts,
    _ticker: Ticker,
}

/// Why a component cannot be a function. The text is for whoever deploys it.
#[derive(Debug, thiserror::Error)]
pub enum Rejection {
    #[error("the body is empty; send the bytes of a WebAssembly component")]
    Empty,
    #[error("the bytes are not WebAssembly (they do not begin with \"\\0asm\")")]
    NotWasm,
    #[error(
        "the bytes are a core module, not a component; build for `wasm32-wasip2`, or wrap the module with \
         `wasm-tools component new`"
    )]
    CoreModule,
    #[error("the component is not valid: {0}")]
    Invalid(String),
    #[error("the component imports what Weir does not offer: {0}")]
    Import(String),
    #[error(
        "the component exports neither `wasi:http/incoming-handler@0.2` nor `wasi:http/handler@0.3`; it exports {0}"
    )]
    NoHandler(String),
}

/// A component that can be a function.
pub struct Checked {
    /// The interfaces that it imports: all that it can touch.
    pub imports: Vec<String>,
}

/// A component mapped into memory and linked to the host, ready to make sandboxes.
pub struct Code {
    pub pre: ProxyPre<Host>,
}

impl Compiler {
    pub fn new(config: &SandboxConfig, artifacts: std::path::PathBuf) -> anyhow::Result<Self> {
        let engine = Engine::new(&settings(config)).map_err(|error| anyhow::anyhow!(one_line(&error)))?;
        let linker = linker(&engine).map_err(|error| anyhow::anyhow!(one_line(&error)))?;
        let artifacts = Artifacts::open(artifacts, &engine)?;
        let ticker = Ticker::start(engine.clone(), config.epoch)?;
        Ok(Self { engine, linker, artifacts, _ticker: ticker })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn artifacts(&self) -> &Artifacts {
        &self.artifacts
    }

    /// Compiles a component, keeps its artifact under `digest`, and checks what it imports and exports. Takes
    /// seconds of CPU for a large component. The artifact is kept even if the checks fail; the caller removes it.
    ///
    /// # Errors
    /// A [`Rejection`] for what is wrong with the component; anything else is the server's own trouble.
    pub fn compile(&self, digest: &str, bytes: &[u8]) -> anyhow::Result<Checked> {
        look(bytes)?;
        let component = self.component(digest, || Ok(bytes.into()))?;
        let ty = component.component_type();
        let imports = ty.imports(&self.engine).map(|(name, _)| name.to_owned()).collect();
        self.link(&component)?;
        Ok(Checked { imports })
    }

    /// Maps the artifact of a component that was compiled before, and links it. `bytes` gives the component's own
    /// bytes, for when the artifact is gone or another engine's.
    pub fn load(
        &self,
        digest: &str,
        bytes: impl FnOnce() -> std::io::Result<Vec<u8>>,
    ) -> anyhow::Result<Code> {
        let component = self.component(digest, || bytes().map(Cow::Owned))?;
        Ok(Code { pre: self.link(&component)? })
    }

    /// A component's code, mapped; compiled first if there is no artifact.
    fn component<'a>(
        &self,
        digest: &str,
        bytes: impl FnOnce() -> std::io::Result<Cow<'a, [u8]>>,
    ) -> anyhow::Result<Component> {
        if let Some(component) = self.artifacts.map(&self.engine, digest) {
            return Ok(component);
        }
        let code = self
            .engine
            .precompile_component(&bytes()?)
            .map_err(|error| Rejection::Invalid(one_line(&error)))?;
        self.artifacts.keep(digest, &code)?;
        drop(code);
        self.artifacts
            .map(&self.engine, digest)
            .ok_or_else(|| anyhow::anyhow!("an artifact that was just made cannot be mapped"))
    }

    fn link(&self, component: &Component) -> Result<ProxyPre<Host>, Rejection> {
        let pre =
            self.linker.instantiate_pre(component).map_err(|error| Rejection::Import(one_line(&error)))?;
        let newer = p3::bindings::ServicePre::new(pre.clone()).map(ProxyPre::P3);
        newer
            .or_else(|_| p2::bindings::ProxyPre::new(pre.clone()).map(ProxyPre::P2))
            .map_err(|_| Rejection::NoHandler(self.exports(&pre)))
    }

    fn exports(&self, pre: &InstancePre<Host>) -> String {
        let ty = pre.component().component_type();
        let names: Vec<String> = ty.exports(&self.engine).map(|(name, _)| format!("`{name}`")).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    }
}

fn settings(config: &SandboxConfig) -> Config {
    let sandboxes = config.sandboxes.get();
    // A component may be built of several core modules (interpreters are); slots for those are shared by all.
    let parts = sandboxes.saturating_mul(config.parts.get());
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(sandboxes)
        .total_stacks(sandboxes)
        .total_core_instances(parts)
        .total_memories(parts)
        .total_tables(parts)
        .max_memory_size(config.max_memory.as_usize())
        .table_elements(config.table_elements)
        .max_tables_per_module(8)
        .linear_memory_keep_resident(config.keep_resident.as_usize())
        .table_keep_resident(config.keep_resident.as_usize())
        // Never PAGEMAP_SCAN: what it misses would be seen by the next tenant.
        .pagemap_scan(wasmtime::Enabled::No);
    let mut settings = Config::new();
    settings
        .wasm_component_model(true)
        .wasm_component_model_async(true)
        .epoch_interruption(true)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    settings
}

fn linker(engine: &Engine) -> wasmtime::Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    wasmtime_wasi::p3::add_to_linker(&mut linker)?;
    wasmtime_wasi_http::p3::add_to_linker(&mut linker)?;
    wasi_nn::add_to_linker(&mut linker)?;
    Ok(linker)
}

/// What can be said of the bytes before anything parses them. Source: the component model's binary format, whose
/// preamble is a magic of four bytes, a version of two and a layer of two.
fn look(bytes: &[u8]) -> Result<(), Rejection> {
    match bytes {
        [] => Err(Rejection::Empty),
        [b'\0', b'a', b's', b'm', _, _, 1, 0, ..] => Ok(()),
        [b'\0', b'a', b's', b'm', _, _, 0, 0, ..] => Err(Rejection::CoreModule),
        [b'\0', b'a', b's', b'm', ..] => {
            Err(Rejection::Invalid("it ends within its first eight bytes".to_owned()))
        }
        _ => Err(Rejection::NotWasm),
    }
}

fn one_line(error: &wasmtime::Error) -> String {
    format!("{error:#}").replace('\n', " ")
}

/// Advances the engine's epoch until dropped.
struct Ticker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    fn start(engine: Engine, every: Duration) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let tick = move || {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::park_timeout(every);
                engine.increment_epoch();
            }
        };
        let thread = std::thread::Builder::new().name("weir-epoch".to_owned()).spawn(tick)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The ticker cannot panic; if it did, there is nothing left to stop.
            let _ = thread.join();
        }
    }
}
