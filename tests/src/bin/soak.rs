//! A server under normal traffic with the whole hostile corpus beside it, for as long as asked.
//!
//! `cargo run --release -p weir-tests --bin soak -- --minutes 10`. Sixteen connections call functions and check every
//! answer, two workers go through the corpus and check every outcome, and the server's memory is read every second.
//! For the first minutes (`--warm-up`) memory grows: each of the pool's slots keeps some of it after its first use. What
//! grows after that is a leak: the slope is printed, and is for a person to judge. Exits with 1 if an answer was wrong, the victim of the corpus noticed anything, or the server ended.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Value, json};
use weir_tests::corpus::{AT_REST, Corpus, settings};
use weir_tests::guests::{self, Behaviour};
use weir_tests::{Client, Heard, Process, argument, root};

const CONNECTIONS: u64 = 16;
const HOSTILE: usize = 2;

/// What was counted.
#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    behaviours: AtomicU64,
    /// Answers of a wrong status or none: the victims noticed.
    errors: AtomicU64,
    /// Answers of success that are not the right ones, and behaviours that did not come to what they must.
    wrong: AtomicU64,
}

impl Counts {
    /// One more, of which the first few are shown.
    fn more(count: &AtomicU64, what: &str) {
        if count.fetch_add(1, Ordering::Relaxed) < 10 {
            println!("{what:.1000}");
        }
    }
}

#[tokio::main]
async fn main() {
    let warm_up = Duration::from_secs(60 * argument("warm-up", 10));
    let time = warm_up + Duration::from_secs(60 * argument("minutes", 10));
    let data = tempfile::tempdir().unwrap();
    let mut server = Process::serve_with(data.path(), &settings(32)).await;
    let at_start = server.memory();
    let client = Client::new(&server.url);
    let corpus = Corpus::deploy(&client).await.unwrap_or_else(|wrong| panic!("{wrong}"));
    let corpus = Arc::new(corpus);
    let file_type = deploy(&client).await;

    let (counts, stop) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
    let mut workers = vec![];
    for worker in 0..HOSTILE {
        let (corpus, counts, stop) = (Arc::clone(&corpus), Arc::clone(&counts), Arc::clone(&stop));
        workers.push(tokio::spawn(async move { misbehave(worker, &corpus, &counts, &stop).await }));
    }
    for connection in 0..CONNECTIONS {
        // A connection of its own each.
        let client = Client::new(&server.url);
        let (counts, stop) = (Arc::clone(&counts), Arc::clone(&stop));
        workers
            .push(tokio::spawn(async move { behave(connection, &client, file_type, &counts, &stop).await }));
    }

    let started = Instant::now();
    let (mut samples, mut at_warm, mut restarts) = (vec![], at_start, 0);
    while started.elapsed() < time {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if !server.is_alive() {
            restarts = 1;
            break;
        }
        if started.elapsed() < warm_up {
            at_warm = server.memory();
        } else {
            samples.push((started.elapsed().as_secs_f64() / 60.0, kib(server.memory())));
        }
    }
    let at_end = if restarts == 0 { server.memory() } else { 0 };
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.unwrap();
    }
    let left = if restarts == 0 { at_rest(&client).await } else { vec!["the server is gone".to_owned()] };

    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (errors, wrong) = (count(&counts.errors), count(&counts.wrong));
    println!("minutes                {:>12.1}", started.elapsed().as_secs_f64() / 60.0);
    println!("calls                  {:>12}", count(&counts.calls));
    println!("hostile behaviours     {:>12}", count(&counts.behaviours));
    println!("wrong answers          {wrong:>12}");
    println!("victim errors          {errors:>12}");
    println!("restarts               {restarts:>12}");
    println!("forbidden connections  {:>12}", corpus.touched());
    println!("RSS at start       KiB {:>12.0}", kib(at_start));
    println!("RSS when warm      KiB {:>12.0}", kib(at_warm));
    println!("RSS at end         KiB {:>12.0}", kib(at_end));
    println!("slope          KiB/min {:>12.1}", slope(&samples));
    let half = samples.split_at(samples.len() / 2).1;
    println!("of the second half     {:>12.1}", slope(half));
    println!("back to baseline       {:>12}", if left.is_empty() { "yes" } else { "no" });
    for line in &left {
        println!("  {line}");
    }
    if restarts == 0 {
        server.kill().await;
    }
    std::process::exit(i32::from(wrong + errors + restarts > 0 || corpus.touched() > 0));
}

#[allow(clippy::cast_precision_loss)]
fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

/// Deploys what the normal traffic calls; whether the example is among it, whose model is there only after
/// `make models`.
async fn deploy(client: &Client) -> bool {
    let magika = std::fs::read(root().join("models/magika/model.onnx"));
    let mut all = vec![
        ("echo", guests::ECHO, json!({})),
        ("hello", guests::HELLO, json!({})),
        ("reused", guests::HELLO, json!({ "reuse": 100 })),
        ("three", guests::HELLO_P3, json!({})),
        ("nn", guests::NN, json!({ "models": ["double"] })),
    ];
    let file_type = magika.is_ok();
    if let Ok(magika) = magika {
        assert_eq!(client.put_model("magika", magika).await.status, 201);
        all.push(("file-type", guests::FILE_TYPE, json!({ "models": ["magika"] })));
    }
    for (name, component, config) in all {
        let deployed = client.deploy(name, std::fs::read(component).unwrap(), &config).await;
        assert_eq!(deployed.status, 201, "{}", deployed.text());
    }
    file_type
}

async fn misbehave(worker: usize, corpus: &Corpus, counts: &Counts, stop: &AtomicBool) {
    let start = worker * Behaviour::ALL.len() / HOSTILE;
    for behaviour in Behaviour::ALL.into_iter().cycle().skip(start) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        counts.behaviours.fetch_add(1, Ordering::Relaxed);
        if let Err(wrong) = corpus.run(behaviour).await {
            Counts::more(&counts.wrong, &wrong);
        }
    }
}

async fn behave(seed: u64, client: &Client, file_type: bool, counts: &Counts, stop: &AtomicBool) {
    let mut rng = Rng::with_seed(seed);
    while !stop.load(Ordering::Relaxed) {
        let (function, path, body, right) = call(&mut rng, file_type);
        counts.calls.fetch_add(1, Ordering::Relaxed);
        match client.hear(client.call(function, path, body)).await {
            Heard::Whole(answer) if answer.status == 200 && right(&answer) => {}
            Heard::Whole(answer) if answer.status == 200 => {
                Counts::more(&counts.wrong, &format!("{function} answered {}", answer.text()));
            }
            other => Counts::more(&counts.errors, &format!("{function}: {other:?}")),
        }
    }
}

type Right = Box<dyn Fn(&weir_tests::Answer) -> bool + Send>;

/// A call of one of the functions, and how to see that its answer is right.
fn call(rng: &mut Rng, file_type: bool) -> (&'static str, &'static str, String, Right) {
    match rng.u32(if file_type { ..20 } else { ..19 }) {
        0..6 => ("hello", "/", String::new(), Box::new(|answer| answer.text() == "Hello, world!\n")),
        6..8 => ("reused", "/", String::new(), Box::new(|answer| answer.text() == "Hello, world!\n")),
        8..10 => ("three", "/", String::new(), Box::new(|answer| answer.text() == "Hello from 0.3!\n")),
        10..15 => {
            let length = rng.usize(..10_000);
            let body: String = std::iter::repeat_with(|| rng.alphanumeric()).take(length).collect();
            let sent = body.clone();
            ("echo", "/", body, Box::new(move |answer| answer.json["body"] == *sent))
        }
        15..19 => {
            let number = rng.i16(..);
            let input = json!({ "name": "x", "type": "fp32", "shape": [1], "data": data(f32::from(number)) });
            let body = json!({ "model": "double", "inputs": [input] }).to_string();
            let doubled = data(f32::from(number) * 2.0);
            ("nn", "/run", body, Box::new(move |answer| answer.json["ok"][0]["data"] == doubled))
        }
        _ => {
            let body = "fn main() { println!(\"{}\", 1 + 1); }\n".repeat(rng.usize(100..1000));
            ("file-type", "/", body, Box::new(|answer| answer.json["label"] == "rust"))
        }
    }
}

fn data(number: f32) -> Value {
    json!(number.to_le_bytes())
}

/// Waits up to a minute until the server holds nothing any more; what it still holds then.
async fn at_rest(client: &Client) -> Vec<String> {
    for _ in 0..600 {
        if client.not_zero(&AT_REST).await.is_empty() {
            return vec![];
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    client.not_zero(&AT_REST).await
}

/// The slope of the line that is nearest to all points, by least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = f64::from(u32::try_from(points.len()).unwrap()).max(1.0);
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let covariance: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let variance: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if variance > 0.0 { covariance / variance } else { 0.0 }
}
