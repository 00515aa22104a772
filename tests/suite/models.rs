//! Models and tensors, as guests meet them.

use std::sync::Arc;

use futures::FutureExt;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tract_onnx::pb::tensor_proto::DataType;
use weir_tests::onnx::Axis;
use weir_tests::{Server, guests, model, onnx, until};

async fn with_guest(config: Value) -> Server {
    let server = Server::start().await;
    let models = [
        ("double", onnx::double(DataType::Float, &[Axis::Named("batch"), Axis::Fixed(2)])),
        ("sum", onnx::sum()),
        ("other", onnx::double(DataType::Float, &[Axis::Fixed(1)])),
    ];
    for (name, bytes) in models {
        let put = server.put_model(name, bytes).await;
        assert_eq!(put.status, 201, "{}", put.text());
    }
    let deployed = server.deploy("nn", guests::NN, config).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());
    server
}

fn tensor(name: &str, ty: &str, shape: &[u32], data: &[u8]) -> Value {
    json!({ "name": name, "type": ty, "shape": shape, "data": data })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_shows_the_models_signature() {
    let server = Server::start().await;
    let put = server.put_model("sum", onnx::sum()).await;
    assert_eq!(put.status, 201);
    let spec = |name: &str| json!({ "name": name, "dtype": "f32", "shape": ["batch", 2] });
    assert_eq!(put.json["inputs"], json!([spec("a"), spec("b")]));
    assert_eq!(put.json["outputs"], json!([spec("sum")]));
    assert_eq!(server.get("/v1/models/sum").await.json["digest"], put.json["digest"]);
    let listed = server.get("/v1/models").await.json;
    assert_eq!(listed["models"].as_array().unwrap().len(), 1);
    assert_eq!(server.send(server.request(Method::DELETE, "/v1/models/sum")).await.status, 204);
    assert_eq!(server.get("/v1/models/sum").await.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tensor_type_goes_in_and_comes_out() {
    let server = Server::start().await;
    let cases: [(&str, DataType, Vec<u8>, Vec<u8>); 6] = [
        ("fp16", DataType::Float16, vec![0x00, 0x3c], vec![0x00, 0x40]),
        ("fp32", DataType::Float, 1.5_f32.to_le_bytes().to_vec(), 3.0_f32.to_le_bytes().to_vec()),
        ("fp64", DataType::Double, 1.5_f64.to_le_bytes().to_vec(), 3.0_f64.to_le_bytes().to_vec()),
        ("u8", DataType::Uint8, vec![100], vec![200]),
        ("i32", DataType::Int32, (-7_i32).to_le_bytes().to_vec(), (-14_i32).to_le_bytes().to_vec()),
        ("i64", DataType::Int64, (1_i64 << 40).to_le_bytes().to_vec(), (1_i64 << 41).to_le_bytes().to_vec()),
    ];
    let names: Vec<&str> = cases.iter().map(|(ty, ..)| *ty).chain(["bool"]).collect();
    for (ty, dtype, ..) in &cases {
        let put = server.put_model(ty, onnx::double(*dtype, &[Axis::Fixed(1)])).await;
        assert_eq!(put.status, 201, "{ty}: {}", put.text());
    }
    let put = server.put_model("bool", onnx::with_itself("Xor", DataType::Bool, &[Axis::Fixed(2)])).await;
    assert_eq!(put.status, 201, "{}", put.text());
    assert_eq!(server.deploy("nn", guests::NN, json!({ "models": names })).await.status, 201);
    for (ty, _, input, output) in &cases {
        let answer = server.run("nn", ty, json!([tensor("x", ty, &[1], input)])).await;
        let expected = json!([{ "name": "y", "type": ty, "shape": [1], "data": output }]);
        assert_eq!(answer["ok"], expected, "{ty}: {answer}");
    }
    // Booleans are u8 to guests, and only 0 and 1 are booleans.
    let answer = server.run("nn", "bool", json!([tensor("x", "u8", &[2], &[1, 0])])).await;
    assert_eq!(answer["ok"][0]["data"], json!([0, 0]), "{answer}");
    let answer = server.run("nn", "bool", json!([tensor("x", "u8", &[2], &[2, 0])])).await;
    assert_eq!(answer["code"], "ErrorCode::InvalidArgument", "{answer}");
    // bf16 travels, though no model of this engine takes it.
    let answer = server.run("nn", "fp16", json!([tensor("x", "bf16", &[1], &[0, 0])])).await;
    assert_eq!(answer["error"], "input `x`: expected f16 [1], given bf16 [1]");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tensors_get_a_sentence_that_names_input_expected_and_given() {
    let server = with_guest(json!({ "models": ["double", "sum"] })).await;
    let two = |name: &str| tensor(name, "fp32", &[1, 2], &[0; 8]);
    let cases: Vec<(&str, Value, &str, &str)> = vec![
        (
            "double",
            json!([tensor("x", "fp32", &[1, 3], &[0; 12])]),
            "InvalidArgument",
            "input `x`: expected f32 [batch, 2], given f32 [1, 3]",
        ),
        (
            "double",
            json!([tensor("x", "i64", &[1, 2], &[0; 16])]),
            "InvalidArgument",
            "input `x`: expected f32 [batch, 2], given i64 [1, 2]",
        ),
        (
            "double",
            json!([tensor("x", "fp32", &[2], &[0; 8])]),
            "InvalidArgument",
            "input `x`: expected f32 [batch, 2], given f32 [2]",
        ),
        (
            "double",
            json!([tensor("x", "fp32", &[1, 2], &[0; 7])]),
            "InvalidArgument",
            "input `x`: a f32 tensor of shape [1, 2] has 8 bytes, given 7",
        ),
        (
            "double",
            json!([tensor("x", "fp32", &[u32::MAX, u32::MAX, u32::MAX, 2], &[])]),
            "InvalidArgument",
            "is too large",
        ),
        ("double", json!([two("z")]), "InvalidArgument", "the model has no input `z`; it has `x`"),
        ("double", json!([]), "InvalidArgument", "input `x` is missing; expected f32 [batch, 2]"),
        ("double", json!([two("x"), two("x")]), "InvalidArgument", "input `x` is given twice"),
        ("sum", json!([two("a")]), "InvalidArgument", "input `b` is missing; expected f32 [batch, 2]"),
        (
            "sum",
            json!([two("a"), tensor("b", "fp32", &[2, 2], &[0; 16])]),
            "InvalidArgument",
            "input `b`: expected f32 [batch, 2] with batch = 1, given f32 [2, 2]",
        ),
        (
            "other",
            json!([]),
            "Security",
            "the function's configuration does not allow model `other`; it allows `double`, `sum`",
        ),
        ("nothing", json!([]), "Security", "does not allow model `nothing`"),
        ("../double", json!([]), "Security", "does not allow model `../double`"),
    ];
    for (model, inputs, code, says) in cases {
        let answer = server.run("nn", model, inputs).await;
        assert_eq!(answer["code"], format!("ErrorCode::{code}"), "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(says), "{answer} should say {says}");
    }
    let fine = server.run("nn", "sum", json!([two("a"), two("b")])).await;
    assert_eq!(fine["ok"][0]["shape"], json!([1, 2]));
    assert_eq!(server.devices.stats().inferences, 1, "nothing wrong ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guests_own_model_bytes_are_refused_unless_allowed() {
    let server = with_guest(json!({})).await;
    assert_eq!(server.deploy("own", guests::NN, json!({ "allow_model_bytes": true })).await.status, 201);
    let load = async |function: &str, query: &str, bytes: Vec<u8>| {
        server.call(function, &format!("/load?{query}"), bytes).await.json
    };
    let refused = load("nn", "", onnx::sum()).await;
    assert_eq!(refused["code"], "ErrorCode::Security");
    assert!(refused["error"].as_str().unwrap().contains("allow_model_bytes"), "{refused}");
    let cases = [
        ("", onnx::sum(), Value::Null, ""),
        ("encoding=autodetect", onnx::sum(), Value::Null, ""),
        (
            "encoding=openvino",
            onnx::sum(),
            json!("ErrorCode::InvalidEncoding"),
            "`openvino` is not supported",
        ),
        ("encoding=ggml", onnx::sum(), json!("ErrorCode::InvalidEncoding"), "`ggml` is not supported"),
        ("target=gpu", onnx::sum(), json!("ErrorCode::UnsupportedOperation"), "no GPU on this machine"),
        ("target=tpu", onnx::sum(), json!("ErrorCode::UnsupportedOperation"), "no TPU"),
        ("", b"not a model".to_vec(), json!("ErrorCode::InvalidEncoding"), "cannot be loaded"),
    ];
    for (query, bytes, code, says) in cases {
        let answer = load("own", query, bytes).await;
        assert_eq!(answer["code"], code, "{query}: {answer}");
        assert!(answer["error"].as_str().unwrap_or_default().contains(says), "{query}: {answer}");
    }
    until("its graphs are gone with its sandboxes", async || server.devices.stats().resident.is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_graph_serves_many_sandboxes_at_once() {
    let server = Arc::new(with_guest(json!({ "models": ["double"] })).await);
    let callers: Vec<_> = (0..32_u8)
        .map(|caller| {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let value = f32::from(caller);
                let data: Vec<u8> = [value, value].iter().flat_map(|value| value.to_le_bytes()).collect();
                let answer = server.run("nn", "double", json!([tensor("x", "fp32", &[1, 2], &data)])).await;
                let expected: Vec<u8> =
                    [2.0 * value, 2.0 * value].iter().flat_map(|value: &f32| value.to_le_bytes()).collect();
                assert_eq!(answer["ok"][0]["data"], json!(expected), "{answer}");
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(server.devices.stats().loads, 1);
    let resident = server.get("/v1/models/double").await.json["resident"].clone();
    assert_eq!(resident.as_array().unwrap().len(), 1, "{resident}");
}

#[tokio::test(flavor = "multi_thread")]
async fn models_whose_shapes_the_engine_cannot_follow_run_for_each_shape() {
    let server = Server::start().await;
    for (name, file) in
        [("magika", "magika/model.onnx"), ("cls", "ppocr/cls.onnx"), ("det", "ppocr/det.onnx")]
    {
        let put = server.put_model(name, model(file)).await;
        assert_eq!(put.status, 201, "{}", put.text());
    }
    let config = json!({ "models": ["magika", "cls", "det"], "request_timeout": "60s" });
    server.deploy("nn", guests::NN, config).await;
    let raw = async |query: &str, bytes: usize| {
        let answer = server.call("nn", &format!("/raw?{query}"), vec![0; bytes]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.body.len()
    };
    assert_eq!(raw("model=magika&input=bytes&type=i32&shape=1,2048", 2048 * 4).await, 214 * 4);
    assert_eq!(raw("model=magika&input=bytes&type=i32&shape=3,2048", 3 * 2048 * 4).await, 3 * 214 * 4);
    assert_eq!(raw("model=cls&input=x&type=fp32&shape=2,3,48,192", 2 * 3 * 48 * 192 * 4).await, 2 * 2 * 4);
    for side in [64, 96] {
        let query = format!("model=det&input=x&type=fp32&shape=1,3,{side},{side}");
        assert_eq!(raw(&query, 3 * side * side * 4).await, side * side * 4);
    }
    // A shape that the model itself cannot work with is the caller's mistake, and says so.
    let answer = server
        .run("nn", "cls", json!([tensor("x", "fp32", &[1, 4, 48, 192], &vec![0; 4 * 48 * 192 * 4])]))
        .await;
    assert_eq!(answer["code"], "ErrorCode::InvalidArgument", "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_uploaded_anew_serves_the_next_call() {
    let server = Server::start().await;
    let floats = |value: f32| value.to_le_bytes().to_vec();
    server.put_model("m", onnx::with_itself("Add", DataType::Float, &[Axis::Fixed(1)])).await;
    server.deploy("nn", guests::NN, json!({ "models": ["m"] })).await;
    let run = async || server.run("nn", "m", json!([tensor("x", "fp32", &[1], &floats(3.0))])).await;
    assert_eq!(run().await["ok"][0]["data"], json!(floats(6.0)));
    server.put_model("m", onnx::with_itself("Mul", DataType::Float, &[Axis::Fixed(1)])).await;
    assert_eq!(run().await["ok"][0]["data"], json!(floats(9.0)));
    let in_use = server.send(server.request(Method::DELETE, "/v1/models/m")).await;
    assert_eq!((in_use.status, in_use.code()), (409, "model_in_use"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_stops_its_running_graph() {
    let server = Server::start().await;
    const STEPS: usize = 2000;
    server.put_model("slow", onnx::slow(256, STEPS)).await;
    server.deploy("nn", guests::NN, json!({ "models": ["slow"], "request_timeout": "5m" })).await;
    let body = json!({
        "model": "slow",
        "inputs": [tensor("x0", "fp32", &[256, 256], &vec![0; 256 * 256 * 4])],
        "times": 1000,
    })
    .to_string();
    let mut client = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let head =
        format!("POST /fn/default/nn/run HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(body.as_bytes()).await.unwrap();
    until("the graph runs", async || server.devices.stats().operators > 0).await;
    drop(client);
    until("the lane is free", async || server.devices.stats().devices[0].busy == 0).await;
    until("the sandbox is gone", async || server.metric("weir_sandboxes").await == 0.0).await;
    let stopped = server.devices.stats();
    assert!(stopped.operators < 1000 * STEPS as u64, "it did not run to its end");
    assert_eq!(server.metric("weir_calls_total{outcome=\"cancelled\"}").await, 1.0);
    // Nothing runs on: the counter stands while another function answers.
    server.deploy("hello", guests::HELLO, json!({})).await;
    assert_eq!(server.get("/fn/default/hello/").await.status, 200);
    assert_eq!(server.devices.stats().operators, stopped.operators);
}

#[test]
fn a_short_run_whose_work_is_known_needs_no_other_thread() {
    // One thread for all that may take long, which is held while the graphs are asked.
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let examiner = std::sync::Arc::new(weir_gpu::InProcess(weir_gpu::ModelLimits::default()));
        let service = weir_gpu::Service::new(&weir_gpu::DeviceConfig::default(), examiner);
        for (name, axis, at_once) in [("fixed", Axis::Fixed(2), true), ("open", Axis::Named("n"), false)] {
            let bytes = onnx::double(DataType::Float, &[axis]).into();
            let mut source = weir_gpu::ModelSource::from_memory(name, weir_gpu::Format::Onnx, bytes);
            source.examined = Some(0);
            let lease = service.load("t", &source, weir_gpu::DeviceKind::Cpu).await.unwrap();
            let infer = || {
                let data = [1.5_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat();
                let input = weir_gpu::Tensor::new(weir_gpu::Dtype::F32, vec![2], data.into()).unwrap();
                service.infer(&lease, vec![("x".to_owned(), input)], weir_gpu::Job::default())
            };
            // How short it is, is known by the run before; on a busy machine that one may have seemed long.
            let mut seen = false;
            for _ in 0..20 {
                let outputs = infer().await.unwrap().outputs;
                assert_eq!(outputs[0].1.data()[..4], 3.0_f32.to_le_bytes());
                let (release, held) = std::sync::mpsc::channel::<()>();
                let holding = tokio::task::spawn_blocking(move || held.recv());
                seen |= infer().now_or_never().is_some();
                drop(release);
                assert!(holding.await.unwrap().is_err());
            }
            assert_eq!(seen, at_once, "{name}");
        }
    });
}
