//! Handlers by path and method.

use std::fmt;

use crate::serve::Answer;
use crate::{Error, Request, Response};

type Handler = Box<dyn Fn(Request) -> Result<Response, Error>>;

/// Handlers by path and method. A path may have parameters, `/items/{id}`, which [`Request::param`] gives, and end with one that
/// takes all that is left, `/files/{*path}`.
///
/// ```
/// use weir_sdk::{Error, Request, Response, Router, function};
///
/// #[function]
/// fn handle(request: Request) -> Result<Response, Error> {
///     Router::new().get("/items/{id}", item).post("/items", add).handle(request)
/// }
///
/// fn item(request: Request) -> Result<Response, Error> {
///     let id: u32 = request.param("id")?;
///     Ok(Response::text(format!("item {id}")))
/// }
///
/// async fn add(request: Request) -> Result<Response, Error> {
///     Ok(Response::text(request.text()?).with_status(201))
/// }
/// # fn main() {}
/// ```
///
/// No route for the path: 404 `not_found`; for its method: 405 `method_not_allowed` with `Allow`. HEAD is answered by the handler
/// of GET where it has none of its own.
#[derive(Default)]
pub struct Router {
    paths: matchit::Router<usize>,
    /// For each path its methods.
    routes: Vec<(String, Vec<(String, Handler)>)>,
    /// What is wrong with a route, which each request is told.
    wrong: Option<String>,
}

impl Router {
    /// A router without routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same router with a handler for this method, in capitals, and path. A path that is no path, two that are for the same
    /// requests, or a second handler of the same method answers all requests with 500 `invalid_route`.
    pub fn route<A: Answer<K>, K>(
        mut self,
        method: &str,
        path: &str,
        handler: impl Fn(Request) -> A + 'static,
    ) -> Self {
        let index = self.routes.iter().position(|(given, _)| given == path).unwrap_or_else(|| {
            if let Err(error) = self.paths.insert(path, self.routes.len()) {
                self.wrong.get_or_insert(format!("{path}: {error}"));
            }
            self.routes.push((path.to_string(), Vec::new()));
            self.routes.len() - 1
        });
        if let Some((_, methods)) = self.routes.get_mut(index) {
            if methods.iter().any(|(given, _)| given == method) {
                self.wrong.get_or_insert(format!("{method} {path} has two handlers"));
            }
            methods.push((method.to_string(), Box::new(move |request| handler(request).wait())));
        }
        self
    }

    /// GET, and HEAD with it.
    pub fn get<A: Answer<K>, K>(self, path: &str, handler: impl Fn(Request) -> A + 'static) -> Self {
        self.route("GET", path, handler)
    }

    /// POST.
    pub fn post<A: Answer<K>, K>(self, path: &str, handler: impl Fn(Request) -> A + 'static) -> Self {
        self.route("POST", path, handler)
    }

    /// PUT.
    pub fn put<A: Answer<K>, K>(self, path: &str, handler: impl Fn(Request) -> A + 'static) -> Self {
        self.route("PUT", path, handler)
    }

    /// DELETE.
    pub fn delete<A: Answer<K>, K>(self, path: &str, handler: impl Fn(Request) -> A + 'static) -> Self {
        self.route("DELETE", path, handler)
    }

    /// PATCH.
    pub fn patch<A: Answer<K>, K>(self, path: &str, handler: impl Fn(Request) -> A + 'static) -> Self {
        self.route("PATCH", path, handler)
    }

    /// Any method.
    pub fn any<A: Answer<K>, K>(self, path: &str, handler: impl Fn(Request) -> A + 'static) -> Self {
        self.route(ANY, path, handler)
    }

    /// Hands the request to the handler of its path and method.
    pub fn handle(&self, request: Request) -> Result<Response, Error> {
        if let Some(wrong) = &self.wrong {
            return Err(Error::new(500, "invalid_route", wrong.clone()));
        }
        let path = request.path().to_string();
        let found = self.paths.at(&path).ok();
        let Some((found, (_, methods))) =
            found.and_then(|found| Some((found.params, self.routes.get(*found.value)?)))
        else {
            return Err(Error::not_found(format!("there is nothing at {path}")));
        };
        let handler =
            |name: &str| methods.iter().find(|(given, _)| given == name).map(|(_, handler)| handler);
        let request = request.with_parameters(found.iter());
        if let Some(handler) = handler(request.method()).or_else(|| handler(ANY)) {
            return handler(request);
        }
        match handler("GET") {
            Some(get) if request.method() == "HEAD" => get(request).map(Response::without_body),
            _ => Err(Error::method_not_allowed(&allowed(methods))),
        }
    }
}

/// The name of [`Router::any`]'s method, which no request can have.
const ANY: &str = "*";

/// The methods as `Allow` lists them.
fn allowed(methods: &[(String, Handler)]) -> String {
    let names = methods.iter().map(|(name, _)| if name == "GET" { "GET, HEAD" } else { name });
    names.collect::<Vec<_>>().join(", ")
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = self.routes.iter().map(|(path, methods)| (path, allowed(methods)));
        f.debug_map().entries(routes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router() -> Router {
        Router::new()
            .get("/", |_| Ok::<_, Error>(Response::text("root")))
            .get("/items/{id}/parts/{part}", |request: Request| {
                let (id, part) = (request.param::<String>("id")?, request.param::<u32>("part")?);
                Ok::<_, Error>(Response::text(format!("{id} {part}")))
            })
            .post("/items", |request: Request| async move { Ok::<_, Error>(Response::text(request.text()?)) })
            .delete("/items", |_| Err::<Response, _>(Error::bad_request("no")))
            .any("/any/{*rest}", |request: Request| {
                Ok::<_, Error>(Response::text(format!(
                    "{} {}",
                    request.method(),
                    request.param::<String>("rest")?
                )))
            })
    }

    fn call(method: &str, path: &str) -> (u16, String) {
        match router().handle(Request::new(method, path, "body")) {
            Ok(response) => (response.status(), String::from_utf8_lossy(response.body()).into_owned()),
            Err(error) => (error.status(), error.to_string()),
        }
    }

    #[test]
    fn requests_find_their_handlers() {
        assert_eq!(call("GET", "/?a=1"), (200, "root".to_string()));
        assert_eq!(call("GET", "/items/a%20b/parts/7"), (200, "a b 7".to_string()));
        assert_eq!(call("GET", "/items/a/parts/x").0, 400);
        assert_eq!(call("POST", "/items"), (200, "body".to_string()));
        assert_eq!(call("BREW", "/any/a/b"), (200, "BREW a/b".to_string()));
        assert_eq!(call("HEAD", "/"), (200, String::new()));
    }

    #[test]
    fn what_has_no_handler_is_told_why() {
        assert_eq!(call("GET", "/nowhere"), (404, "404 not_found: there is nothing at /nowhere".to_string()));
        let error = router().handle(Request::new("PUT", "/items", "")).unwrap_err();
        assert_eq!(error.headers(), [("allow".to_string(), "POST, DELETE".to_string())]);
        let error = router().handle(Request::new("PUT", "/", "")).unwrap_err();
        assert_eq!(error.detail(), "use GET, HEAD");
    }

    #[test]
    fn a_wrong_route_is_told_to_each_request() {
        let ok = |_: Request| Ok::<_, Error>(Response::new(204));
        for router in [Router::new().get("/{", ok), Router::new().get("/", ok).get("/", ok)] {
            assert_eq!(router.handle(Request::new("GET", "/", "")).unwrap_err().code(), "invalid_route");
        }
    }
}
