//! The host of `cargo test`: what [`testing::Host`](crate::testing::Host) was told to be.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::{Answered, NnFailure};
use crate::bindings::wasi::nn::errors::ErrorCode;
use crate::fetch::Fetch;
use crate::testing::Host;
use crate::{Dtype, Error, Outputs, Request};

thread_local! {
    /// The host of the call that this thread is in.
    static CURRENT: RefCell<Option<Rc<Host>>> = const { RefCell::new(None) };
}

/// Calls `function` in a sandbox of `host`.
pub fn within<T>(host: Rc<Host>, function: impl FnOnce() -> T) -> T {
    /// Puts back what was there, also where the function panics, so that the thread's next test begins anew.
    struct Before(Option<Rc<Host>>);
    impl Drop for Before {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _before = Before(CURRENT.replace(Some(host)));
    function()
}

fn current() -> Option<Rc<Host>> {
    CURRENT.with_borrow(Clone::clone)
}

#[derive(Debug, Clone)]
pub struct Tensor {
    shape: Vec<u32>,
    dtype: Dtype,
    bytes: Vec<u8>,
}

impl Tensor {
    pub fn new(shape: &[u32], dtype: Dtype, bytes: &[u8]) -> Self {
        Self { shape: shape.to_vec(), dtype, bytes: bytes.to_vec() }
    }

    pub fn shape(&self) -> Vec<u32> {
        self.shape.clone()
    }

    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.clone()
    }
}

#[derive(Debug)]
pub struct Graph {
    name: String,
    host: Rc<Host>,
}

impl Graph {
    pub fn open(name: &str) -> Result<Self, NnFailure> {
        let missing = || (ErrorCode::NotFound, "the test's host has no such model".to_string());
        let host = current().filter(|host| host.models.contains_key(name)).ok_or_else(missing)?;
        Ok(Self { name: name.to_string(), host })
    }

    pub fn run(&self, inputs: Vec<(String, Tensor)>) -> Result<Vec<(String, Tensor)>, NnFailure> {
        let model = self.host.models.get(&self.name);
        let model = model.ok_or_else(|| (ErrorCode::NotFound, String::new()))?;
        let inputs = inputs.into_iter().map(|(name, host)| (name, crate::Tensor { host })).collect();
        let outputs = model(Outputs::of(&self.name, inputs)).map_err(|error| {
            (
                if error.status() < 500 { ErrorCode::InvalidArgument } else { ErrorCode::RuntimeError },
                error.detail().into(),
            )
        })?;
        Ok(outputs.into_iter().map(|(name, tensor)| (name, tensor.host)).collect())
    }
}

/// There is none: a test's requests have their bodies in memory.
#[derive(Debug)]
pub enum Incoming {}

impl Incoming {
    pub fn into_body(self) -> Option<Body> {
        match self {}
    }
}

/// The parts of an upstream's answer.
#[derive(Debug)]
pub struct Body(VecDeque<Result<Vec<u8>, Error>>);

impl Body {
    pub fn next(&mut self) -> Option<Result<Vec<u8>, Error>> {
        self.0.pop_front()
    }

    pub fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Vec<u8>, Error>>> {
        Poll::Ready(self.next())
    }
}

#[derive(Debug)]
pub struct Fetching(Option<Result<Answered, String>>);

pub fn fetch(fetch: Fetch) -> Result<Fetching, String> {
    let host = current().ok_or("there is no host: call the function by `testing::Host`")?;
    let upstream = host.upstream.as_ref().ok_or("HttpRequestDenied: the test's host has no upstream")?;
    let url = fetch.url();
    let mut request = Request::new(
        &fetch.method,
        &fetch.target.path,
        fetch.body.into_bytes().map_err(|error| error.to_string())?,
    );
    for (name, value) in &fetch.headers {
        request = request.with_header(name, value);
    }
    let answer = match upstream(&url, request) {
        Ok(response) => {
            let headers = response
                .headers()
                .iter()
                .map(|(name, value)| (name.clone(), value.clone().into_bytes()))
                .collect();
            Ok((response.status(), headers, Body(response.into_parts().collect())))
        }
        Err(error) => Err(error.detail().to_string()),
    };
    Ok(Fetching(Some(answer)))
}

impl Fetching {
    pub fn wait(mut self) -> Result<Answered, String> {
        self.take()
    }

    pub fn poll(&mut self, _: &mut Context<'_>) -> Poll<Result<Answered, String>> {
        Poll::Ready(self.take())
    }

    fn take(&mut self) -> Result<Answered, String> {
        self.0.take().unwrap_or_else(|| Err("the answer was taken before".to_string()))
    }
}

/// Time that passes at once.
#[derive(Debug)]
pub struct Timer;

impl Timer {
    pub fn new(_: Duration) -> Self {
        Self
    }

    pub fn poll(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// Outside of a test's host, the process's environment.
pub fn config(name: &str) -> Option<String> {
    match current() {
        Some(host) => host.config.get(name).cloned(),
        None => std::env::var(name).ok(),
    }
}

pub fn log(line: &str) {
    match current() {
        Some(host) => host.log.borrow_mut().push(line.trim_end_matches('\n').to_string()),
        None => eprint!("{line}"),
    }
}

/// Runs `future` to its end. Nothing of this host's makes a future wait, but another thread may.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Thread(std::thread::Thread);
    impl Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Thread(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        std::thread::park();
    }
}
