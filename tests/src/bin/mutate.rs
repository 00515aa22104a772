//! Sends broken uploads to a server: models and components that were whole, and have been changed at random places.
//!
//! `cargo run --release -p weir-tests --bin mutate -- --models 500 --components 500 --seed 1`. What is accepted is run.
//! A refusal is as good as a success; a failure of the server is not: a status of 5xx for an upload, a status of 500
//! for a call, a connection that breaks, or the server's end. Each such input is kept in `target/mutate/`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::json;
use tract_onnx::pb::tensor_proto::DataType;
use weir_tests::guests::{self, Behaviour};
use weir_tests::onnx::{self, Axis};
use weir_tests::{Client, Heard, Process, argument, root};

#[tokio::main]
async fn main() {
    let models = argument("models", 500);
    let components = argument("components", 500);
    let seed = argument("seed", 1);
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve(data.path()).await;
    let mut run = Run { client: Client::new(&server.url), server, seen: BTreeMap::new(), failures: 0 };
    run.models(models, seed).await;
    run.components(components, seed).await;

    println!("{:<10} {:>6}  {:<24} {:>7}", "what", "status", "code", "times");
    for ((what, status, code), times) in &run.seen {
        println!("{what:<10} {status:>6}  {code:<24} {times:>7}");
    }
    println!("{} failures of the server", run.failures);
    run.server.kill().await;
    std::process::exit(i32::from(run.failures > 0));
}

struct Run {
    client: Client,
    server: Process,
    /// How often each status and code was seen, by what was asked.
    seen: BTreeMap<(&'static str, u16, String), u32>,
    failures: u32,
}

impl Run {
    async fn models(&mut self, count: u64, seed: u64) {
        let mut seeds = vec![
            onnx::double(DataType::Float, &[Axis::Fixed(1)]),
            onnx::double(DataType::Int64, &[Axis::Named("n"), Axis::Fixed(3)]),
            onnx::with_itself("Mul", DataType::Float, &[Axis::Named("n")]),
            onnx::sum(),
            onnx::slow(4, 3),
        ];
        // It is there only where `make models` was run.
        seeds.extend(std::fs::read(root().join("models/magika/model.onnx")));
        assert_eq!(self.client.put_model("m", seeds[0].clone()).await.status, 201);
        let nn = std::fs::read(guests::NN).unwrap();
        let config = json!({ "models": ["m"], "request_timeout": "5s" });
        assert_eq!(self.client.deploy("nn", nn, &config).await.status, 201);
        for number in 0..count {
            let mut rng = Rng::with_seed(seed ^ (number << 20));
            let bytes = mutated(&mut rng, &seeds);
            let upload =
                self.client.request(reqwest::Method::PUT, "/v1/models/m?format=onnx").body(bytes.clone());
            let heard = self.client.hear(upload).await;
            let accepted = matches!(&heard, Heard::Whole(answer) if answer.status == 201);
            self.note("model", &heard, 500..600, &format!("{seed}-{number}.onnx"), &bytes);
            if accepted {
                let given = json!([{ "name": "x", "type": "fp32", "shape": [1], "data": [0, 0, 0, 0] }]);
                let heard = self.client.run("nn", "m", given).await;
                self.note("inference", &heard, 500..501, &format!("{seed}-{number}.onnx"), &bytes);
            }
        }
    }

    async fn components(&mut self, count: u64, seed: u64) {
        let built = [guests::HELLO, guests::HELLO_P3, guests::ECHO, guests::NN, guests::TROUBLE];
        let mut seeds: Vec<Vec<u8>> = built.iter().map(|path| std::fs::read(path).unwrap()).collect();
        // Small ones: a change meets their types and sections more often.
        seeds.extend([Behaviour::PostReturnSpins, Behaviour::Reenter].map(|small| small.component().bytes()));
        let config = json!({ "request_timeout": "1s", "startup_timeout": "1s" });
        for number in 0..count {
            let mut rng = Rng::with_seed(seed ^ (number << 20) ^ 1);
            let bytes = mutated(&mut rng, &seeds);
            let heard = self.client.hear(self.client.deploying("f", bytes.clone(), &config)).await;
            let accepted = matches!(&heard, Heard::Whole(answer) if answer.status < 300);
            self.note("component", &heard, 500..600, &format!("{seed}-{number}.wasm"), &bytes);
            if accepted {
                let heard = self.client.hear(self.client.call("f", "/", "body")).await;
                self.note("call", &heard, 500..501, &format!("{seed}-{number}.wasm"), &bytes);
                self.client.delete("f").await;
            }
        }
    }

    /// Counts what was heard, and keeps the input if it was a failure of the server.
    fn note(
        &mut self,
        what: &'static str,
        heard: &Heard,
        failures: std::ops::Range<u16>,
        name: &str,
        bytes: &[u8],
    ) {
        let (status, code, failed) = match heard {
            Heard::Whole(answer) => {
                let code = answer.json["code"].as_str().unwrap_or("").to_owned();
                (answer.status, code, failures.contains(&answer.status))
            }
            // A guest that was changed may break off its answer. An upload's answer never may.
            Heard::BrokenOff { status, .. } => (status.unwrap_or(0), "broken off".to_owned(), what != "call"),
            Heard::Nothing(_) => (0, "nothing".to_owned(), true),
        };
        *self.seen.entry((what, status, code)).or_default() += 1;
        let alive = self.server.is_alive();
        if failed || !alive {
            self.failures += 1;
            let folder = root().join("target/mutate");
            std::fs::create_dir_all(&folder).unwrap();
            let file = folder.join(format!("{what}-{name}"));
            std::fs::write(&file, bytes).unwrap();
            println!("{what} failed; {} is kept: {heard:?}", file.display());
        }
        if !alive {
            println!("the server is gone");
            std::process::exit(1);
        }
    }
}

/// One of the seeds, changed once or a few times.
fn mutated(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[rng.usize(..seeds.len())].clone();
    // Mostly one change, so that what is around it is still read.
    for _ in 0..[1, 1, 1, 2, 4][rng.usize(..5)] {
        if !bytes.is_empty() {
            change(rng, &mut bytes, seeds);
        }
    }
    bytes
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let at = rng.usize(..bytes.len());
    let span = |rng: &mut Rng, length: usize| rng.usize(1..=64.min(length));
    match rng.u32(..12) {
        // Bits flip.
        0 => (0..rng.u32(2..=8)).for_each(|_| {
            let at = rng.usize(..bytes.len());
            bytes[at] ^= 1 << rng.u32(..8);
        }),
        // One bit flips, or one byte is another: all that is about lengths is still true, so more of it is read.
        6..9 => bytes[at] ^= 1 << rng.u32(..8),
        9 => bytes[at] = rng.u8(..),
        10 => bytes[at] = bytes[at].wrapping_add(1),
        // The end is missing.
        1 => bytes.truncate(at),
        // A piece is there twice.
        2 => {
            let piece = bytes[at..at + span(rng, bytes.len() - at)].to_vec();
            bytes.splice(at..at, piece);
        }
        // A piece of another is in the place of one.
        3 => {
            let other = &seeds[rng.usize(..seeds.len())];
            let from = rng.usize(..other.len());
            let piece = other[from..from + span(rng, other.len() - from)].to_vec();
            let end = at + span(rng, bytes.len() - at);
            bytes.splice(at..end, piece);
        }
        // A number of variable length becomes as large as it can: lengths, counts, indices and axes are such numbers.
        4 => {
            let end = (at..bytes.len()).find(|at| bytes[*at] < 0x80).map_or(bytes.len(), |last| last + 1);
            let huge: &[u8] = match rng.u32(..4) {
                0 => &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F],
                1 => &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
                2 => &[0xFF, 0xFF, 0xFF, 0xFF, 0x07],
                _ => &[0x80, 0x80, 0x04],
            };
            bytes.splice(at..end, huge.iter().copied());
        }
        // Bytes of no meaning are put between.
        5 => {
            let length = rng.usize(1..=64);
            let piece: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(length).collect();
            bytes.splice(at..at, piece);
        }
        // A piece is missing.
        _ => drop(bytes.drain(at..at + span(rng, bytes.len() - at))),
    }
}
