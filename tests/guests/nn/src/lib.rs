//! Drives `wasi:nn` as the request says, and tells what came of it: `{"ok": …}` or `{"code": …, "error": …}`.
//!
//! `POST /run` opens a model by name and runs it on the given inputs, `times` times. `POST /load?encoding=&target=`
//! loads the body as a model of the guest's own. `POST /raw` runs the body's bytes as one f32 row.

use serde::{Deserialize, Serialize};
use weir_sdk::bindings::wasi::nn::errors::Error as NnError;
use weir_sdk::bindings::wasi::nn::graph::{ExecutionTarget, Graph, GraphEncoding, load, load_by_name};
use weir_sdk::bindings::wasi::nn::tensor::{Tensor, TensorType};
use weir_sdk::{Error, Request, Response, function, json};

#[derive(Deserialize)]
struct Run {
    model: String,
    #[serde(default)]
    inputs: Vec<Given>,
    #[serde(default = "once")]
    times: u32,
}

fn once() -> u32 {
    1
}

#[derive(Serialize, Deserialize)]
struct Given {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    shape: Vec<u32>,
    data: Vec<u8>,
}

#[function]
fn handle(request: Request) -> Result<Response, Error> {
    let outcome = match request.path() {
        "/run" => {
            let run: Run = request.json()?;
            load_by_name(&run.model).and_then(|graph| {
                let mut outputs = vec![];
                for _ in 0..run.times {
                    outputs = compute(&graph, &run.inputs)?;
                }
                Ok(json!({ "ok": outputs }))
            })
        }
        "/load" => {
            let encoding = match request.query("encoding") {
                Some("openvino") => GraphEncoding::Openvino,
                Some("tensorflowlite") => GraphEncoding::Tensorflowlite,
                Some("ggml") => GraphEncoding::Ggml,
                Some("autodetect") => GraphEncoding::Autodetect,
                _ => GraphEncoding::Onnx,
            };
            let target = match request.query("target") {
                Some("gpu") => ExecutionTarget::Gpu,
                Some("tpu") => ExecutionTarget::Tpu,
                _ => ExecutionTarget::Cpu,
            };
            load(&[request.body()?.to_vec()], encoding, target).map(|_| json!({ "ok": [] }))
        }
        "/raw" => return raw(&request),
        other => return Err(Error::not_found(format!("no behaviour {other}"))),
    };
    Response::json(&outcome.unwrap_or_else(|error| told(&error)))
}

fn told(error: &NnError) -> weir_sdk::serde_json::Value {
    json!({ "code": format!("{:?}", error.code()), "error": error.data() })
}

fn compute(graph: &Graph, inputs: &[Given]) -> Result<Vec<Given>, NnError> {
    let context = graph.init_execution_context()?;
    let inputs = inputs
        .iter()
        .map(|given| (given.name.clone(), Tensor::new(&given.shape, ty(&given.ty), &given.data)));
    let outputs = context.compute(inputs.collect())?;
    let shown = |(name, tensor): (String, Tensor)| Given {
        name,
        ty: format!("{:?}", tensor.ty()).rsplit("::").next().unwrap_or_default().to_lowercase(),
        shape: tensor.dimensions(),
        data: tensor.data(),
    };
    Ok(outputs.into_iter().map(shown).collect())
}

fn ty(name: &str) -> TensorType {
    match name {
        "fp16" => TensorType::Fp16,
        "fp64" => TensorType::Fp64,
        "bf16" => TensorType::Bf16,
        "u8" => TensorType::U8,
        "i32" => TensorType::I32,
        "i64" => TensorType::I64,
        _ => TensorType::Fp32,
    }
}

/// The least work around one inference: for the benches. The model's name, input, and type are in the query.
fn raw(request: &Request) -> Result<Response, Error> {
    let mut run = Run { model: String::new(), inputs: vec![], times: 1 };
    let mut input = Given { name: String::new(), ty: String::new(), shape: vec![], data: vec![] };
    for (name, value) in request.query_pairs() {
        match name.as_str() {
            "model" => run.model = value.to_string(),
            "input" => input.name = value.to_string(),
            "type" => input.ty = value.to_string(),
            "shape" => input.shape = value.split(',').filter_map(|axis| axis.parse().ok()).collect(),
            _ => {}
        }
    }
    input.data = request.body()?.to_vec();
    let failed = |error: NnError| Error::new(500, "nn", error.data());
    let graph = load_by_name(&run.model).map_err(failed)?;
    let mut outputs = compute(&graph, &[input]).map_err(failed)?;
    let first = if outputs.is_empty() { vec![] } else { outputs.swap_remove(0).data };
    Ok(Response::bytes("application/octet-stream", first))
}
