//! What functions can rely on, with the Rust SDK: the rows of `tests/conformance/README.md`.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Error as IoError;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use weir_sdk::serde_json::{Value, json};
use weir_sdk::{
    Element, Error, Event, Fetch, Inputs, Model, Request, Response, Router, Tensor, bf16, config, f16,
    function, log,
};

#[function]
fn handle(request: Request) -> Result<Response, Error> {
    Router::new()
        .any("/echo", echo)
        .get("/items/{id}/parts/{part}", item)
        .get("/headers", headers)
        .get("/empty", |_| Ok::<_, Error>(Response::new(204)))
        .post("/bytes", bytes)
        .post("/greet", greet)
        .post("/text", text)
        .get("/stream", stream)
        .post("/upper", upper)
        .get("/events", events)
        .post("/double", double)
        .post("/chain", chain)
        .post("/tensor", tensor)
        .get("/refuse", refuse)
        .get("/fail", fail)
        .get("/config/{name}", configured)
        .get("/log", logged)
        .post("/fetch", fetch)
        .get("/relay", relay)
        .post("/both", both)
        .get("/random", random)
        .get("/clock", clock)
        .get("/spin", spin)
        .get("/grow", grow)
        .handle(request)
}

fn echo(request: Request) -> Result<Response, Error> {
    let query: BTreeMap<&String, &String> =
        request.query_pairs().iter().map(|(key, value)| (key, value)).collect();
    let ones = request.headers().iter().filter(|(name, _)| name == "x-one");
    let ones: Vec<_> = ones.map(|(_, value)| String::from_utf8_lossy(value)).collect();
    Response::json(&json!({
        "method": request.method(),
        "path": request.path(),
        "query": query,
        "x-one": ones,
        "body": request.text()?,
    }))
}

fn item(request: Request) -> Result<Response, Error> {
    let (id, part): (String, String) = (request.param("id")?, request.param("part")?);
    Response::json(&json!({ "id": id, "part": part }))
}

fn headers(_: Request) -> Result<Response, Error> {
    Ok(Response::text("made").with_status(201).with_header("x-a", "1").with_header("x-a", "2"))
}

fn bytes(request: Request) -> Result<Response, Error> {
    let reversed: Vec<u8> = request.body()?.iter().rev().copied().collect();
    Ok(Response::bytes("application/octet-stream", reversed))
}

#[derive(Deserialize)]
struct Person {
    name: String,
}

async fn greet(request: Request) -> Result<Response, Error> {
    let Person { name } = request.json()?;
    Response::json(&json!({ "greeting": format!("Hello, {name}!") }))
}

fn text(request: Request) -> Result<Response, Error> {
    Response::json(&json!({ "characters": request.text()?.chars().count() }))
}

fn count(request: &Request) -> Result<u32, Error> {
    let n = request.query("n").unwrap_or("1");
    n.parse().map_err(|_| Error::bad_request(format!("`n` is no number: {n:?}")))
}

fn stream(request: Request) -> Result<Response, Error> {
    let lines = (0..count(&request)?).map(|n| Ok(format!("line {n}\n")));
    Ok(Response::stream("text/plain; charset=utf-8", lines))
}

fn upper(request: Request) -> Result<Response, Error> {
    let parts = request.into_chunks()?.map(|part| part.map(|part| part.to_ascii_uppercase()));
    Ok(Response::stream("application/octet-stream", parts))
}

fn events(request: Request) -> Result<Response, Error> {
    let event = |n: u32| Ok(Event::json(&json!({ "n": n }))?.with_name("tick").with_id(n.to_string()));
    Ok(Response::events((0..count(&request)?).map(event)))
}

#[derive(Inputs)]
struct Numbers {
    x: Vec<f32>,
}

fn double(request: Request) -> Result<Response, Error> {
    let numbers: Vec<f32> = request.json()?;
    let model = Model::open(request.query("model").unwrap_or("double"))?;
    let outputs = match request.query("input") {
        Some(name) => model.run([(name, Tensor::new(&[numbers.len()], &numbers)?)])?,
        None => model.run(Numbers { x: numbers })?,
    };
    if let Some(name) = request.query("output") {
        return Response::json(&outputs.get(name)?.to_vec::<f32>()?);
    }
    Response::json(&first(outputs)?.to_vec::<f32>()?)
}

fn chain(request: Request) -> Result<Response, Error> {
    let model = Model::open("double")?;
    let once = first(model.run(Numbers { x: request.json()? })?)?;
    let twice = first(model.run([("x", once)])?)?;
    Response::json(&twice.to_vec::<f32>()?)
}

fn first(outputs: weir_sdk::Outputs) -> Result<Tensor, Error> {
    let first = outputs.into_iter().next();
    Ok(first.ok_or_else(|| Error::new(500, "no_such_output", "the model gave no output"))?.1)
}

#[derive(Deserialize)]
struct Given {
    dtype: String,
    shape: Vec<usize>,
    data: Vec<f64>,
}

fn tensor(request: Request) -> Result<Response, Error> {
    let given: Given = request.json()?;
    match &*given.dtype {
        "f16" => typed(&given, f16::from_f64, |value| json!(value.to_f64())),
        "bf16" => typed(&given, bf16::from_f64, |value| json!(value.to_f64())),
        "f32" => typed(&given, |value| value as f32, |value| json!(value)),
        "f64" => typed(&given, |value| value, |value| json!(value)),
        "u8" => typed(&given, |value| value as u8, |value| json!(value)),
        "i32" => typed(&given, |value| value as i32, |value| json!(value)),
        "i64" => typed(&given, |value| value as i64, |value| json!(value)),
        other => Err(Error::new(400, "invalid_tensor", format!("there is no element type {other}"))),
    }
}

fn typed<T: Element>(given: &Given, make: fn(f64) -> T, show: fn(T) -> Value) -> Result<Response, Error> {
    let elements: Vec<T> = given.data.iter().map(|&value| make(value)).collect();
    let tensor = Tensor::new(&given.shape, &elements)?;
    let hex: String = tensor.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    Response::json(&json!({
        "dtype": tensor.dtype().to_string(),
        "shape": tensor.shape(),
        "data": tensor.to_vec::<T>()?.into_iter().map(show).collect::<Vec<_>>(),
        "bytes": hex,
    }))
}

fn refuse(_: Request) -> Result<Response, Error> {
    Err(Error::new(409, "taken", "it is taken").with_header("x-why", "because"))
}

fn fail(_: Request) -> Result<Response, Error> {
    Err(IoError::other("all is lost"))?
}

fn configured(request: Request) -> Result<Response, Error> {
    let name: String = request.param("name")?;
    Response::json(&json!({ "value": config(&name)? }))
}

fn logged(_: Request) -> Result<Response, Error> {
    log::debug!("one");
    log::info!("two\nlines");
    log::warn!("three");
    log::error!("four");
    Ok(Response::new(204))
}

#[derive(Deserialize)]
struct Wanted {
    url: String,
    method: String,
    body: String,
    header: String,
}

fn fetch(request: Request) -> Result<Response, Error> {
    let wanted: Wanted = request.json()?;
    let answer =
        Fetch::new(&wanted.method, &wanted.url).header("x-ask", wanted.header).body(wanted.body).send()?;
    let (status, reply) = (answer.status(), answer.header("x-reply").map(str::to_owned));
    Response::json(&json!({ "status": status, "body": answer.text()?, "x-reply": reply }))
}

async fn relay(request: Request) -> Result<Response, Error> {
    let url = request.query("url").ok_or_else(|| Error::bad_request("which `url`?"))?;
    let answer = Fetch::get(url).start()?.await?;
    Ok(Response::stream_async("application/octet-stream", answer.into_chunks()))
}

#[derive(Deserialize)]
struct Two {
    urls: [String; 2],
}

async fn both(request: Request) -> Result<Response, Error> {
    let Two { urls: [one, other] } = request.json()?;
    let (one, other) = (Fetch::get(&one).start()?, Fetch::get(&other).start()?);
    Response::json(&[one.await?.status(), other.await?.status()])
}

fn random(_: Request) -> Result<Response, Error> {
    let bytes = weir_sdk::bindings::wasi::random::random::get_random_bytes(16);
    Response::json(&json!({ "random": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() }))
}

fn clock(_: Request) -> Result<Response, Error> {
    Response::json(&json!({ "now": SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64 }))
}

fn spin(_: Request) -> Result<Response, Error> {
    let mut n = 0u64;
    loop {
        n = black_box(n).wrapping_add(1);
    }
}

fn grow(_: Request) -> Result<Response, Error> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    loop {
        all.push(black_box(vec![1; 1 << 20]));
    }
}
