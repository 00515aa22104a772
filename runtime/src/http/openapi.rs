//! The description of all this: OpenAPI 3.1, made of the router's own routes, of what they ask for, and of the types that
//! they read and write.
//!
//! What an operation reads and gives is said in `operations.rs`. What follows from its route is not said again: its path's
//! parameters, its key, and the refusals that these bring with them.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::guard::{Needs, TENANT};
use super::operations;
use super::problem::{Code, ProblemView};
use crate::http::idempotency;
use crate::meter::money::Month;
use crate::schema::{FunctionText, KeyText, ModelText, RateCardText, TenantText};

/// A route's method, `ANY` for all, its path, and what it asks for.
pub type Route = (&'static str, &'static str, Needs);

type Make = fn(&mut SchemaGenerator) -> Schema;

/// The methods of a route that has all of them.
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// What a body is.
#[derive(Clone, Copy)]
pub enum Takes {
    Nothing,
    Json(Make),
    JsonOrNothing(Make),
    /// Bytes of this type, or a form with these fields.
    Deploy(Make),
    Bytes,
}

/// What a route does: what it reads, and what it may answer.
pub struct Operation {
    id: &'static str,
    what: &'static str,
    query: Option<Make>,
    takes: Takes,
    /// Whether it is about a tenant's things, or may be: whether one that must be named is not.
    tenant: Option<bool>,
    once: bool,
    /// Whether its answer has the tag of what is kept, and whether it can be asked for on condition of that.
    tagged: bool,
    conditional: bool,
    signed: bool,
    gives: Vec<Answer>,
    problems: Vec<Code>,
}

/// An answer that is no problem.
struct Answer {
    /// Its status, or `default`.
    status: &'static str,
    what: &'static str,
    /// Media types and schemas that its body may have.
    contents: Vec<(&'static str, Make)>,
}

impl Operation {
    pub fn new(id: &'static str, what: &'static str) -> Self {
        let (query, takes, gives) = (None, Takes::Nothing, vec![]);
        let (tenant, once, tagged, conditional, signed) = (None, false, false, false, false);
        Self { id, what, query, takes, tenant, once, tagged, conditional, signed, gives, problems: vec![] }
    }

    /// It is about a tenant's things.
    pub fn of_tenant(mut self) -> Self {
        self.tenant = Some(true);
        self.fails(&[Code::TenantRequired, Code::InvalidName, Code::NotFound])
    }

    /// It may be about a tenant's things.
    pub fn of_tenant_or_none(mut self) -> Self {
        self.tenant = Some(false);
        self.fails(&[Code::InvalidName, Code::NotFound])
    }

    pub fn asks<T: JsonSchema>(mut self) -> Self {
        self.query = Some(T::json_schema);
        self.fails(&[Code::InvalidRequest])
    }

    /// It may read JSON.
    pub fn may_take<T: JsonSchema>(self) -> Self {
        let mut takes = self.takes::<T>();
        takes.takes = Takes::JsonOrNothing(|generator| generator.subschema_for::<T>());
        takes
    }

    /// It reads JSON.
    pub fn takes<T: JsonSchema>(self) -> Self {
        self.reads(Takes::Json(|generator| generator.subschema_for::<T>()))
            .fails(&[Code::InvalidConfig, Code::UnsupportedMediaType])
    }

    pub fn reads(mut self, takes: Takes) -> Self {
        self.takes = takes;
        self.fails(&[Code::InvalidRequest, Code::TooLarge, Code::UploadTimeout])
    }

    /// It is done once for each `Idempotency-Key`.
    pub fn once(mut self) -> Self {
        self.once = true;
        self.fails(&[Code::InvalidRequest, Code::Conflict, Code::IdempotencyMismatch, Code::ServerOverloaded])
    }

    /// Its answer has the tag of what is kept.
    pub fn tagged(mut self) -> Self {
        self.tagged = true;
        self
    }

    /// It is done only if what is kept is as the request says.
    pub fn conditional(mut self) -> Self {
        self.conditional = true;
        self.fails(&[Code::InvalidRequest, Code::PreconditionFailed])
    }

    /// What it reads may be signed.
    pub fn signed(mut self) -> Self {
        self.signed = true;
        self.fails(&[Code::InvalidSignature])
    }

    /// It changes what is kept.
    pub fn changes(self) -> Self {
        self.fails(&[Code::StorageFull, Code::StorageUnavailable])
    }

    pub fn gives<T: JsonSchema>(self, status: &'static str, what: &'static str) -> Self {
        self.gives_as::<T>(status, what, "application/json")
    }

    pub fn gives_as<T: JsonSchema>(
        mut self,
        status: &'static str,
        what: &'static str,
        kind: &'static str,
    ) -> Self {
        let make: Make = |generator| generator.subschema_for::<T>();
        match self.gives.iter_mut().find(|given| given.status == status) {
            Some(given) => given.contents.push((kind, make)),
            None => self.gives.push(Answer { status, what, contents: vec![(kind, make)] }),
        }
        self
    }

    /// Its answer has no body.
    pub fn gives_nothing(mut self, what: &'static str) -> Self {
        self.gives.push(Answer { status: "204", what, contents: vec![] });
        self
    }

    /// It answers as a function does, or refuses the call.
    pub fn calls(mut self) -> Self {
        // Any of the statuses may be the function's own, with a body of any type.
        self.problems.clear();
        let any: Make = |_| true.into();
        let what = "The function's answer, or a problem";
        self.gives.push(Answer { status: "default", what, contents: vec![("*/*", any)] });
        self
    }

    pub fn fails(mut self, codes: &[Code]) -> Self {
        self.problems.extend(codes);
        self
    }

    fn describe(&self, route: &Route, generator: &mut SchemaGenerator) -> Value {
        let (_, path, needs) = *route;
        let mut problems = self.problems.clone();
        if let Needs::Right(_) = needs {
            problems.extend([Code::Unauthorized, Code::Forbidden, Code::TenantSuspended]);
            problems.extend([Code::TooManyFailures, Code::Internal]);
        }
        if path.contains("{name}") || path.contains("{month}") {
            problems.push(Code::InvalidName);
        }
        if path.contains("{id}") {
            problems.extend([Code::InvalidName, Code::NotFound]);
        }
        let mut operation = json!({
            "operationId": self.id,
            "summary": self.what,
            "tags": [tag(path)],
            "parameters": self.parameters(path, generator),
            "responses": self.responses(&problems, generator),
            "security": match needs {
                Needs::Nothing => json!([]),
                Needs::Right(_) => json!([{ "key": [] }]),
                // Whether it needs one is the function's matter.
                Needs::Call => json!([{}, { "key": [] }]),
            },
        });
        let content = match self.takes {
            Takes::Nothing => None,
            Takes::Json(make) | Takes::JsonOrNothing(make) => {
                Some(json!({ "application/json": { "schema": make(generator) } }))
            }
            Takes::Deploy(make) => Some(json!({
                "application/wasm": { "schema": {} },
                "application/octet-stream": { "schema": {} },
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "properties": { "config": make(generator), "component": { "type": "string", "format": "binary" } },
                        "required": ["component"],
                        "additionalProperties": false,
                    },
                    "encoding": {
                        "config": { "contentType": "application/json" },
                        "component": { "contentType": "application/wasm" },
                    },
                },
            })),
            Takes::Bytes => Some(json!({ "application/octet-stream": { "schema": {} } })),
        };
        if let (Some(content), Some(fields)) = (content, operation.as_object_mut()) {
            // A function may be called without a body.
            let required = needs != Needs::Call && !matches!(self.takes, Takes::JsonOrNothing(_));
            fields.insert("requestBody".to_owned(), json!({ "required": required, "content": content }));
        }
        operation
    }

    fn parameters(&self, path: &str, generator: &mut SchemaGenerator) -> Vec<Value> {
        let mut parameters: Vec<Value> = in_path(path)
            .map(|name| {
                let schema = match (name, path) {
                    ("path", _) => json!({ "type": "string" }),
                    ("id", _) => json!(generator.subschema_for::<KeyText>()),
                    ("month", _) => json!(generator.subschema_for::<Month>()),
                    ("tenant", _) => json!(generator.subschema_for::<TenantText>()),
                    (_, path) if path.starts_with("/v1/tenants") => {
                        json!(generator.subschema_for::<TenantText>())
                    }
                    (_, path) if path.starts_with("/v1/rate-cards") => {
                        json!(generator.subschema_for::<RateCardText>())
                    }
                    (_, path) if path.starts_with("/v1/models") => {
                        json!(generator.subschema_for::<ModelText>())
                    }
                    _ => json!(generator.subschema_for::<FunctionText>()),
                };
                json!({ "name": name, "in": "path", "required": true, "schema": schema })
            })
            .collect();
        if let Some(query) = self.query {
            let schema = query(generator).to_value();
            let required = schema.get("required").cloned().unwrap_or_default();
            for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let required = required.as_array().is_some_and(|all| all.iter().any(|one| one == name));
                parameters.push(
                    json!({ "name": name, "in": "query", "required": required, "schema": there(field) }),
                );
            }
        }
        if let Some(required) = self.tenant {
            let what = match required {
                true => "Whose things are meant: needed with a key that is of no tenant.",
                false => "Whose keys are meant, where the key is of no tenant; absent for all.",
            };
            let schema = json!(generator.subschema_for::<TenantText>());
            parameters.push(json!({ "name": TENANT, "in": "header", "description": what, "schema": schema }));
        }
        let mut header = |name: &str, what: &str, schema: Value| {
            parameters.push(json!({ "name": name, "in": "header", "description": what, "schema": schema }));
        };
        if self.conditional {
            let tags = "^(W/)?\"[!#-+.-~-]{0,100}\"(, (W/)?\"[!#-+.-~-]{0,100}\"){0,9}$";
            let tags = json!({ "type": "string", "anyOf": [{ "const": "*" }, { "pattern": tags }] });
            header(
                "If-Match",
                "It is done only if it is there with one of these tags, or with any: `*`.",
                tags,
            );
            let all = json!({ "type": "string", "const": "*" });
            header("If-None-Match", "It is done only if it is not there.", all);
        }
        if self.signed {
            let what = "An ed25519 signature of the component by a key of the tenant's, in base64.";
            header("weir-signature", what, json!({ "type": "string", "pattern": "^[A-Za-z0-9+/=]{88}$" }));
        }
        if self.once {
            let what = "Of requests with the same text here, one is done; for a day, and until the server's next start. That it \
                        was done is answered with 409, and what came of it.";
            header(idempotency::HEADER, what, json!({ "type": "string", "pattern": idempotency::PATTERN }));
        }
        parameters
    }

    fn responses(&self, problems: &[Code], generator: &mut SchemaGenerator) -> Value {
        let mut responses = Map::new();
        for Answer { status, what, contents } in &self.gives {
            let mut response = json!({ "description": what });
            if let (true, Some(fields)) = (self.tagged, response.as_object_mut()) {
                let tag =
                    json!({ "description": "The tag of what is kept.", "schema": { "type": "string" } });
                fields.insert("headers".to_owned(), json!({ "ETag": tag }));
            }
            if let (false, Some(fields)) = (contents.is_empty(), response.as_object_mut()) {
                let content: Map<String, Value> = contents
                    .iter()
                    .map(|(kind, make)| ((*kind).to_owned(), json!({ "schema": make(generator) })))
                    .collect();
                fields.insert("content".to_owned(), content.into());
            }
            responses.insert((*status).to_owned(), response);
        }
        let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
        for code in problems {
            let codes = by_status.entry(code.status().as_u16()).or_default();
            if !codes.contains(code) {
                codes.push(*code);
            }
        }
        for (status, codes) in by_status {
            let names: Vec<&str> = codes.iter().map(|code| code.name()).collect();
            let mut schema = json!(generator.subschema_for::<ProblemView>());
            if let Some(fields) = schema.as_object_mut() {
                fields.insert("properties".to_owned(), json!({ "code": { "enum": names } }));
            }
            let mut headers = Map::new();
            if status == 401 {
                headers.insert("WWW-Authenticate".to_owned(), json!({ "schema": { "type": "string" } }));
            }
            if codes.iter().any(|code| code.is_retryable()) {
                let schema = json!({ "type": "integer", "minimum": 1 });
                let what = "Seconds after which to try again.";
                headers.insert("Retry-After".to_owned(), json!({ "description": what, "schema": schema }));
            }
            responses.insert(
                status.to_string(),
                json!({
                    "description": format!("A problem: `{}`.", names.join("`, `")),
                    "headers": headers,
                    "content": { "application/problem+json": { "schema": schema } },
                }),
            );
        }
        responses.into()
    }
}

/// What a route is about: the first part of its path that says so.
fn tag(path: &str) -> &str {
    let mut parts = path.split('/').filter(|part| !part.is_empty() && *part != "v1");
    match parts.next() {
        Some("fn") => "calls",
        Some(
            part @ ("functions" | "models" | "tenants" | "keys" | "devices" | "rate-cards" | "invoices"),
        ) => part,
        _ => "server",
    }
}

/// The names in a path of the description.
fn in_path(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// A route's path, as the description has it: a function's own part of a call's path may have slashes.
fn described(path: &'static str) -> &'static str {
    if path == "/fn/{*call}" { "/fn/{tenant}/{function}/{path}" } else { path }
}

/// What a field of a query is where it is there: it cannot be null.
fn there(field: &Value) -> Value {
    let mut field = field.clone();
    let Some(fields) = field.as_object_mut() else { return field };
    fields
        .remove("default")
        .filter(|default| !default.is_null())
        .map(|default| fields.insert("default".to_owned(), default));
    if let Some(Value::Array(kinds)) = fields.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            fields.insert("type".to_owned(), kind);
        }
    }
    if let Some(Value::Array(kinds)) = fields.get_mut("anyOf") {
        kinds.retain(|kind| kind.get("type") != Some(&json!("null")));
    }
    field
}

/// The document, for these routes. The same routes give the same text.
pub fn document(routes: &[Route]) -> String {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let operations = operations::all();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        let (method, path, needs) = *route;
        let Some((.., operation)) = operations.iter().find(|(of, at, _)| (*of, *at) == (method, path)) else {
            continue;
        };
        let path = described(path);
        let one = [method.to_ascii_lowercase()];
        let methods = if method == "ANY" { METHODS.map(str::to_owned).to_vec() } else { one.to_vec() };
        for method in &methods {
            let mut operation = operation.describe(&(route.0, path, needs), &mut generator);
            // Each has a name of its own.
            if let (true, Some(fields)) = (methods.len() > 1, operation.as_object_mut()) {
                let id =
                    format!("{}-{method}", fields.get("operationId").and_then(Value::as_str).unwrap_or(""));
                fields.insert("operationId".to_owned(), id.into());
                if ["get", "head", "trace", "delete", "options"].contains(&method.as_str()) {
                    fields.remove("requestBody");
                }
            }
            paths.entry(path).or_default().insert(method.clone(), operation);
        }
    }
    let mut schemas = Value::Object(generator.take_definitions(true));
    bound(&mut schemas);
    let mut paths = json!(paths);
    bound(&mut paths);
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir",
            "description": "Serverless inference functions in WebAssembly sandboxes. Refusals are problems (RFC 9457).",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": { "type": "http", "scheme": "bearer", "description": "A key: `weir_<id>_<secret>`." },
            },
        },
    });
    format!("{document:#}\n")
}

/// Gives each integer the bounds that its format has.
fn bound(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let most = match fields.get("format").and_then(Value::as_str) {
                Some("uint16") => Some(u64::from(u16::MAX)),
                Some("uint32") => Some(u64::from(u32::MAX)),
                Some("uint64" | "uint") => Some(u64::MAX),
                _ => None,
            };
            if let Some(most) = most {
                fields.entry("maximum").or_insert(most.into());
            }
            fields.values_mut().for_each(bound);
        }
        Value::Array(items) => items.iter_mut().for_each(bound),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn routes() -> Vec<Route> {
        crate::http::routes(&Settings::default()).list()
    }

    #[test]
    fn each_route_is_described_and_nothing_else() {
        let mut routes: Vec<_> = routes().iter().map(|(method, path, _)| (*method, *path)).collect();
        let mut described: Vec<_> =
            operations::all().iter().map(|(method, path, _)| (*method, *path)).collect();
        routes.sort_unstable();
        described.sort_unstable();
        assert_eq!(
            routes, described,
            "a route lacks its operation in http/operations.rs, or the other way round"
        );
    }

    #[test]
    fn the_document_is_whole_and_stable() {
        let text = document(&routes());
        assert_eq!(text, document(&routes()));
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        let mut ids = std::collections::HashSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{method} {path}");
                let named = operation["parameters"].as_array().unwrap().iter();
                let named: Vec<_> =
                    named.filter(|named| named["in"] == "path").map(|named| &named["name"]).collect();
                assert_eq!(named, in_path(path).collect::<Vec<_>>(), "{method} {path}");
            }
        }
        for reference in text.split("\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(!document["components"]["schemas"][name].is_null(), "{name}");
        }
        assert!(!text.contains("\"$defs\"") && !text.contains("_serialize"), "{text}");
    }
}
