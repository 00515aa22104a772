//! The one wasmtime engine: its settings, its linker, and what it asks of a component.
//!
//! Sandboxes come from a pool of slots whose memory stays resident, so that a start costs microseconds and the most
//! that all sandboxes together can use is known. A ticker advances the engine's epoch, at which a spinning guest
//! yields its thread, so that timeouts reach it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmparser::{Parser, Payload};
use wasmtime::component::{Component, InstancePre, Linker};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};
use wasmtime_wasi_http::handler::ProxyPre;
use wasmtime_wasi_http::{p2, p3};

use super::artifact::Artifacts;
use super::store::Host;
use super::wasi_nn;
use crate::config::Settings;
use crate::units::Size;

/// Maps compiled components and links them to the host.
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
    #[error("the component does not fit: {0}")]
    Unfit(String),
    #[error("the component imports what Weir does not offer: {0}")]
    Import(String),
    #[error(
        "the component exports neither `wasi:http/incoming-handler@0.2` nor `wasi:http/handler@0.3`; it exports {0}"
    )]
    NoHandler(String),
}

/// A component mapped into memory and linked to the host, ready to make sandboxes.
pub struct Code {
    pub pre: ProxyPre<Host>,
    /// The interfaces that it imports: all that it can touch.
    pub imports: Vec<String>,
}

impl Compiler {
    pub fn new(settings: &Settings, artifacts: PathBuf, key: [u8; 32]) -> anyhow::Result<Self> {
        let mut config = base(settings.sandbox.stack);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(settings)));
        let engine = Engine::new(&config).map_err(|error| anyhow::anyhow!(one_line(&error)))?;
        let linker = linker(&engine).map_err(|error| anyhow::anyhow!(one_line(&error)))?;
        let artifacts = Artifacts::open(artifacts, &engine, key)?;
        let ticker = Ticker::start(engine.clone(), settings.sandbox.epoch)?;
        Ok(Self { engine, linker, artifacts, _ticker: ticker })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn artifacts(&self) -> &Artifacts {
        &self.artifacts
    }

    /// Maps the artifact of a component that was compiled, and links it. `None` when there is no artifact.
    ///
    /// # Errors
    /// What is wrong with the component.
    pub fn load(&self, digest: &str) -> Result<Option<Code>, Rejection> {
        let mapped = self.artifacts.map(&self.engine, digest);
        let Some(component) = mapped.map_err(|error| Rejection::Unfit(one_line(&error)))? else {
            return Ok(None);
        };
        let ty = component.component_type();
        let imports = ty.imports(&self.engine).map(|(name, _)| name.to_owned()).collect();
        Ok(Some(Code { pre: self.link(&component)?, imports }))
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

/// What an engine that only compiles makes of a component, for an engine that runs it. Takes seconds of CPU for a large
/// component. For a process that may die.
///
/// # Errors
/// What is wrong with the component.
pub fn compile(bytes: &[u8], stack: Size) -> Result<Vec<u8>, Rejection> {
    look(bytes)?;
    let invalid = |error: wasmtime::Error| Rejection::Invalid(one_line(&error));
    let engine = Engine::new(&base(stack)).map_err(invalid)?;
    engine.precompile_component(bytes).map_err(invalid)
}

/// The interfaces that a component imports, without compiling it. Nothing else of it is checked.
///
/// # Errors
/// Bytes that are no component, or that end in the middle.
pub fn imports(bytes: &[u8]) -> Result<Vec<String>, Rejection> {
    look(bytes)?;
    let invalid = |error: wasmparser::BinaryReaderError| Rejection::Invalid(error.to_string());
    let (mut imports, mut depth) = (vec![], 0_usize);
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(invalid)? {
            // Modules and components within it import from it, not from the host.
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    imports.push(import.map_err(invalid)?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(imports)
}

/// What compiling and running must have in common.
fn base(stack: Size) -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .wasm_component_model_async(true)
        // Sizes beyond 32 bits are no function's need, and a way past arithmetic.
        .wasm_memory64(false)
        .epoch_interruption(true)
        .max_wasm_stack(stack.as_usize())
        // Host functions run on the guest's stack too.
        .async_stack_size(stack.as_usize().saturating_add(HOST_STACK));
    config
}

/// Stack of a sandbox that is the host's.
const HOST_STACK: usize = 1536 << 10;

fn pool(settings: &Settings) -> PoolingAllocationConfig {
    let Settings { sandbox, limits, .. } = settings;
    let sandboxes = sandbox.sandboxes.get();
    // A component may be built of several core modules (interpreters are); slots for those are shared by all. Most of
    // them use the memory of one.
    let parts = sandboxes.saturating_mul(sandbox.parts.get()).max(limits.instances);
    let memories = sandboxes.saturating_mul(2).max(limits.memories);
    let tables = parts.max(limits.tables);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(sandboxes)
        // A guest of several tasks at once has more than one.
        .total_stacks(sandboxes.saturating_mul(2))
        .total_core_instances(parts)
        .total_memories(memories)
        .total_tables(tables)
        .max_core_instances_per_component(limits.instances)
        .max_memories_per_component(limits.memories)
        .max_tables_per_component(limits.tables)
        .max_memories_per_module(limits.memories)
        .max_tables_per_module(limits.tables)
        .max_memory_size(limits.memory.as_usize())
        .table_elements(usize::try_from(limits.table_elements).unwrap_or(usize::MAX))
        .linear_memory_keep_resident(sandbox.keep_resident.as_usize())
        .table_keep_resident(sandbox.keep_resident.as_usize())
        // Never PAGEMAP_SCAN: what it misses would be seen by the next tenant.
        .pagemap_scan(wasmtime::Enabled::No);
    pool
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

pub fn one_line(error: &wasmtime::Error) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::artifact::compatibility;

    #[test]
    fn the_ticker_has_ended_when_it_is_dropped() {
        let ticker = Ticker::start(Engine::default(), Duration::from_secs(3600)).unwrap();
        let stop = Arc::clone(&ticker.stop);
        drop(ticker);
        assert_eq!(Arc::strong_count(&stop), 1, "its thread has let go of it");
    }

    #[test]
    fn what_is_compiled_elsewhere_fits_here() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.sandbox.sandboxes = std::num::NonZeroU32::MIN;
        let compiler = Compiler::new(&settings, folder.path().to_owned(), [0; 32]).unwrap();
        let other = Engine::new(&base(settings.sandbox.stack)).unwrap();
        assert_eq!(compatibility(compiler.engine()), compatibility(&other));
    }
}
