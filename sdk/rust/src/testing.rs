//! Tests of functions with plain `cargo test`: a host of the test's own making, without Wasm and without a server.
//!
//! ```
//! use weir_sdk::testing::Host;
//! use weir_sdk::{Error, Model, Request, Response, Tensor};
//!
//! fn handle(request: Request) -> Result<Response, Error> {
//!     let x: Vec<f32> = request.json()?;
//!     let outputs = Model::open("double")?.run([("x", Tensor::new(&[x.len()], &x)?)])?;
//!     Response::json(&outputs.get("y")?.to_vec::<f32>()?)
//! }
//!
//! let host = Host::new().with_model("double", |inputs| {
//!     let x: Vec<f32> = inputs.get("x")?.to_vec()?;
//!     let y: Vec<f32> = x.iter().map(|x| 2.0 * x).collect();
//!     Ok(vec![("y".to_string(), Tensor::new(&[y.len()], &y)?)])
//! });
//! let response = host.call(handle, Request::new("POST", "/", "[1, 2.5]"));
//! assert_eq!(response.body(), b"[2.0,5.0]");
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use crate::host::fake::within;
use crate::serve::{Answer, answer};
use crate::{Error, Outputs, Request, Response, Tensor};

type Run = dyn Fn(Outputs) -> Result<Vec<(String, Tensor)>, Error>;
type Upstream = dyn Fn(&str, Request) -> Result<Response, Error>;

/// A host for tests: the function's configuration, the models that it may open, the upstream that its requests go to.
#[derive(Default)]
pub struct Host {
    pub(crate) config: HashMap<String, String>,
    pub(crate) models: HashMap<String, Box<Run>>,
    pub(crate) upstream: Option<Box<Upstream>>,
    pub(crate) log: RefCell<Vec<String>>,
}

impl Host {
    /// A host that has nothing: no configuration, no models, no upstream.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same host with a value in the function's configuration.
    pub fn with_config(mut self, name: &str, value: &str) -> Self {
        self.config.insert(name.to_string(), value.to_string());
        self
    }

    /// The same host with a model: its inputs come by their names, its outputs are in the order of the list. An error of less
    /// than 500 is what the host says of wrong inputs, another one a model that failed.
    pub fn with_model(
        mut self,
        name: &str,
        run: impl Fn(Outputs) -> Result<Vec<(String, Tensor)>, Error> + 'static,
    ) -> Self {
        self.models.insert(name.to_string(), Box::new(run));
        self
    }

    /// The same host with something that answers the function's own requests: it gets the URL and the request. An error is a
    /// request that found no answer. Without an upstream each request is refused.
    pub fn with_upstream(
        mut self,
        answer: impl Fn(&str, Request) -> Result<Response, Error> + 'static,
    ) -> Self {
        self.upstream = Some(Box::new(answer));
        self
    }

    /// Starts a sandbox for calls.
    pub fn start(self) -> Sandbox {
        Sandbox(Rc::new(self))
    }

    /// One call of `handler`: what its caller reads. An error is a problem document, as outside of tests. A body in parts has
    /// been made to its end.
    pub fn call<A: Answer<M>, M>(self, handler: impl Fn(Request) -> A, request: Request) -> Response {
        self.start().call(handler, request)
    }
}

/// A host that functions are called on.
#[derive(Debug, Clone)]
pub struct Sandbox(Rc<Host>);

impl Sandbox {
    /// As [`Host::call`].
    pub fn call<A: Answer<M>, M>(&self, handler: impl Fn(Request) -> A, request: Request) -> Response {
        within(self.0.clone(), || answer(handler, request).into_made())
    }

    /// Runs what is no handler on this host, such as a function that opens a model.
    pub fn run<T>(&self, function: impl FnOnce() -> T) -> T {
        within(self.0.clone(), function)
    }

    /// The lines logged so far, such as `INFO started`.
    pub fn log(&self) -> Vec<String> {
        self.0.log.borrow().clone()
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut models: Vec<&String> = self.models.keys().collect();
        models.sort();
        f.debug_struct("Host").field("config", &self.config).field("models", &models).finish_non_exhaustive()
    }
}
