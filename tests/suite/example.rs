//! The example gives the answers of the package that its model comes from.

use serde_json::{Value, json};
use weir_tests::{Server, guests, model, root};

#[tokio::test(flavor = "multi_thread")]
async fn file_type_answers_as_the_wheel_does() {
    let server = Server::start().await;
    assert_eq!(server.put_model("magika", model("magika/model.onnx")).await.status, 201);
    let deployed = server.deploy("file-type", guests::FILE_TYPE, json!({ "models": ["magika"] })).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());

    let folder = root().join("examples/file-type");
    let expected = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: serde_json::Map<String, Value> = serde_json::from_str(&expected).unwrap();
    let mut labels = std::collections::HashSet::new();
    for (file, expected) in &expected {
        let bytes = std::fs::read(folder.join("samples").join(file)).unwrap();
        let answer = server.call("file-type", "/", bytes).await;
        assert_eq!(answer.status, 200, "{file}: {}", answer.text());
        for field in ["label", "mime_type", "group", "description", "is_text"] {
            assert_eq!(answer.json[field], expected[field], "{file}: {field}");
        }
        let score = |value: &Value| value["score"].as_f64().unwrap();
        assert!((score(&answer.json) - score(expected)).abs() < 1e-3, "{file}: {} {expected}", answer.text());
        labels.insert(expected["label"].as_str().unwrap().to_owned());
    }
    println!("{} files of {} types: the same answers as the wheel's", expected.len(), labels.len());
    assert!(expected.len() >= 20 && labels.len() >= 20);

    // Far larger than the blocks that the model looks at, and longer than the host sends at once.
    let long = "fn main() { println!(\"{}\", 1 + 1); }\n".repeat(100_000);
    assert_eq!(server.call("file-type", "/", long).await.json["label"], "rust");
    assert_eq!(server.get("/fn/default/file-type/").await.code(), "method_not_allowed");
}
