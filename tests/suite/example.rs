//! The examples give the answers of the packages that their models come from.

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

/// Far enough apart for two ways of computing the same in 32 and in 64 bits, and for nothing else.
const COSINE_TOLERANCE: f64 = 1e-3;

#[tokio::test(flavor = "multi_thread")]
async fn embeddings_are_those_of_the_reference() {
    let server = Server::start().await;
    assert_eq!(server.put_model("minilm", model("minilm/model.onnx")).await.status, 201);
    let deployed = server.deploy("embeddings", guests::EMBEDDINGS, json!({ "models": ["minilm"] })).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());

    let expected = std::fs::read_to_string(root().join("examples/embeddings/expected.json")).unwrap();
    let expected: Vec<Value> = serde_json::from_str(&expected).unwrap();
    assert_eq!(expected.len(), 50);
    let texts: Vec<&str> = expected.iter().map(|entry| entry["text"].as_str().unwrap()).collect();
    let answer = server.call("embeddings", "/embed", json!({ "texts": texts }).to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let embeddings: Vec<Vec<f64>> = serde_json::from_value(answer.json["embeddings"].clone()).unwrap();
    assert_eq!(embeddings.len(), texts.len());
    for (entry, embedding) in expected.iter().zip(&embeddings) {
        let reference: Vec<f64> = serde_json::from_value(entry["embedding"].clone()).unwrap();
        assert_eq!(embedding.len(), 384);
        assert!((dot(embedding, embedding) - 1.0).abs() < COSINE_TOLERANCE, "{}", entry["text"]);
        assert!(dot(embedding, &reference) > 1.0 - COSINE_TOLERANCE, "{}", entry["text"]);
    }

    // Alone, a text is not padded: it is the same text.
    let alone = server.call("embeddings", "/embed", json!({ "texts": [texts[0]] }).to_string()).await;
    let alone: Vec<Vec<f64>> = serde_json::from_value(alone.json["embeddings"].clone()).unwrap();
    assert!(dot(&alone[0], &embeddings[0]) > 1.0 - COSINE_TOLERANCE);
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_finds_what_means_the_same() {
    let server = Server::start().await;
    assert_eq!(server.put_model("minilm", model("minilm/model.onnx")).await.status, 201);
    let deployed = server.deploy("embeddings", guests::EMBEDDINGS, json!({ "models": ["minilm"] })).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());

    let documents = [
        "Bake the bread for forty minutes, until the crust is brown.",
        "Shares dropped when the news came out.",
        "I forgot my login and cannot get in.",
        "A dam regulates how much water flows downstream.",
    ];
    for (query, best) in
        [("How do I reset my password?", 2), ("What does a weir do?", 3), ("stock market losses", 1)]
    {
        let search = json!({ "query": query, "documents": documents, "top": 2 });
        let answer = server.call("embeddings", "/search", search.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let hits = answer.json.as_array().unwrap();
        assert_eq!(hits.len(), 2);
        assert_eq!((&hits[0]["index"], &hits[0]["text"]), (&json!(best), &json!(documents[best])), "{query}");
        assert!(hits[0]["score"].as_f64().unwrap() > hits[1]["score"].as_f64().unwrap());
    }

    let none =
        server.call("embeddings", "/search", json!({ "query": "a", "documents": [] }).to_string()).await;
    assert_eq!((none.status, none.json), (200, json!([])));
    for (path, body, status, code) in [
        ("/embed", json!({ "texts": vec!["a"; 65] }), 400, "too_many_texts"),
        ("/embed", json!({ "texts": ["a".repeat(65537)] }), 400, "text_too_long"),
        ("/embed", json!({ "text": "a" }), 400, "invalid_json"),
        ("/search", json!({ "query": "a", "documents": ["a"], "top": 0 }), 400, "invalid_top"),
        ("/other", json!({}), 404, "not_found"),
    ] {
        let answer = server.call("embeddings", path, body.to_string()).await;
        assert_eq!((answer.status, answer.code()), (status, code), "{path}: {}", answer.text());
    }
    assert_eq!(server.get("/fn/default/embeddings/embed").await.code(), "method_not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn voice_activity_hears_what_the_wheel_hears() {
    let server = Server::start().await;
    assert_eq!(server.put_model("silero-vad", model("silero/vad.onnx")).await.status, 201);
    let deployed =
        server.deploy("voice-activity", guests::VOICE_ACTIVITY, json!({ "models": ["silero-vad"] })).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());

    let folder = root().join("examples/voice-activity");
    let expected = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: serde_json::Map<String, Value> = serde_json::from_str(&expected).unwrap();
    let seconds = |samples: &Value| json!(samples.as_f64().unwrap() / 16000.0);
    let (mut speeches, mut without) = (0, 0);
    for (file, expected) in &expected {
        let bytes = std::fs::read(folder.join("samples").join(file)).unwrap();
        let answer = server.call("voice-activity", "/?probabilities=1", bytes).await;
        assert_eq!(answer.status, 200, "{file}: {}", answer.text());
        assert_eq!(answer.json["duration_s"], seconds(&expected["samples"]), "{file}");
        let speech: Vec<Value> = expected["speech"].as_array().unwrap().clone();
        let times = speech
            .iter()
            .map(|speech| json!({ "start_s": seconds(&speech["start"]), "end_s": seconds(&speech["end"]) }));
        assert_eq!(answer.json["speech"], times.collect::<Value>(), "{file}");
        let probabilities =
            |value: &Value| -> Vec<f64> { serde_json::from_value(value["probabilities"].clone()).unwrap() };
        let (given, wanted) = (probabilities(&answer.json), probabilities(expected));
        assert_eq!(given.len(), wanted.len(), "{file}");
        assert!(
            given.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-3),
            "{file}: {given:?}, {wanted:?}"
        );
        speeches += speech.len();
        without += usize::from(speech.is_empty());
    }
    assert!(speeches >= 8 && without >= 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn voice_activity_reads_a_stream_and_says_what_it_does_not_take() {
    let server = Server::start().await;
    assert_eq!(server.put_model("silero-vad", model("silero/vad.onnx")).await.status, 201);
    let deployed =
        server.deploy("voice-activity", guests::VOICE_ACTIVITY, json!({ "models": ["silero-vad"] })).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());

    // A header as one writes it who does not know the length, of mono 16-bit samples at this rate.
    let head = |rate: u32| {
        let mut head = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        head.extend([rate, 2 * rate].map(u32::to_le_bytes).concat());
        head.extend(b"\x02\0\x10\0data\xff\xff\xff\xff");
        head
    };
    let samples = root().join("examples/voice-activity/samples");
    let file = std::fs::read(samples.join("speech.wav")).unwrap();
    let whole = server.call("voice-activity", "/", file.clone()).await;
    let streamed = server.call("voice-activity", "/", [head(16000), file[44..].to_vec()].concat()).await;
    assert_eq!((streamed.status, &streamed.json), (200, &whole.json));
    assert!(whole.json.get("probabilities").is_none());

    let five_minutes_and_one_sample = vec![0; 2 * (300 * 16000 + 1)];
    for (path, body, status, code) in [
        ("/", [head(16000), five_minutes_and_one_sample].concat(), 413, "audio_too_long"),
        ("/", head(44100), 415, "unsupported_wav"),
        ("/", b"OggS, and no WAV".to_vec(), 415, "not_wav"),
        ("/", head(16000)[..20].to_vec(), 400, "invalid_wav"),
        ("/", vec![], 400, "invalid_wav"),
        ("/?probabilities=all", file, 400, "invalid_query"),
    ] {
        let answer = server.call("voice-activity", path, body).await;
        assert_eq!((answer.status, answer.code()), (status, code), "{}", answer.text());
    }
    assert_eq!(server.get("/fn/default/voice-activity/").await.code(), "method_not_allowed");
}
