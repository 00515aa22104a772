//! A server that is killed at random points while it is changed, and started again, many times: every acknowledged change
//! is there and in the audit log, none is half there, and all bytes are what their names say.
//!
//! `WEIR_CRASH_CHANGES` says how many changes, `WEIR_CRASH_SEED` which. What is changed follows from the seed; when the
//! system lets the server die does not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tract_onnx::pb::tensor_proto::DataType;
use weir_tests::onnx::{self, Axis};
use weir_tests::{Client, Heard, Process, guests};

/// Who changes things at one time, each things of its own but the same bytes.
const WORKERS: usize = 3;

/// Different bytes of each sort.
const VARIANTS: usize = 3;

/// The longest time, in microseconds, from a round's last acknowledged change to the kill.
const GRACE: u64 = 30_000;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// What uploads are made of, with their digests.
struct Bytes {
    components: Vec<(Vec<u8>, String)>,
    models: Vec<(Vec<u8>, String)>,
}

impl Bytes {
    fn make() -> Self {
        let with_digest = |bytes: Vec<u8>| {
            let digest = digest(&bytes);
            (bytes, digest)
        };
        let hello = std::fs::read(guests::HELLO).unwrap();
        // A custom section: no code, but other bytes.
        let component =
            |variant: usize| [&hello[..], &[0, 3, 1, b'v', u8::try_from(variant).unwrap()]].concat();
        let model = |variant: usize| {
            onnx::double(DataType::Float, &[Axis::Fixed(i64::try_from(variant).unwrap() + 1)])
        };
        Self {
            components: (0..VARIANTS).map(component).map(with_digest).collect(),
            models: (0..VARIANTS).map(model).map(with_digest).collect(),
        }
    }
}

/// What is changed: its kind and its name. Its state is JSON, null while it is not there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Function(String),
    Model(String),
    Tenant(String),
}

impl Thing {
    fn path(&self) -> String {
        match self {
            Self::Function(name) => format!("/v1/functions/{name}"),
            Self::Model(name) => format!("/v1/models/{name}"),
            Self::Tenant(name) => format!("/v1/tenants/{name}"),
        }
    }

    /// Its state, as the server shows it.
    async fn seen(&self, client: &Client) -> Value {
        let answer = client.get(&self.path()).await;
        if answer.status == 404 {
            return Value::Null;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        let shown = &answer.json;
        match self {
            Self::Function(_) => {
                let revision = |shown: &Value| {
                    json!({
                        "revision": shown["revision"], "digest": shown["digest"], "env": shown["config"]["env"],
                    })
                };
                let revisions: Vec<Value> =
                    shown["revisions"].as_array().unwrap().iter().map(revision).collect();
                json!({ "revisions": revisions, "traffic": shown["traffic"] })
            }
            Self::Model(_) => shown["digest"].clone(),
            Self::Tenant(_) => shown["set"]["weight"].clone(),
        }
    }

    /// A change of it, and the state that it is to have then.
    fn change(
        &self,
        before: &Value,
        rng: &mut Rng,
        client: &Client,
        bytes: &Bytes,
    ) -> (RequestBuilder, Value) {
        let delete = || (client.request(Method::DELETE, &self.path()), Value::Null);
        let is_there = !before.is_null();
        match self {
            Self::Tenant(_) => {
                let weight = json!(rng.u32(1..=1000));
                let set = client.request(Method::PUT, &self.path()).json(&json!({ "weight": weight }));
                (set, weight)
            }
            Self::Model(_) if is_there && rng.u8(..4) == 0 => delete(),
            Self::Model(_) => {
                let (bytes, digest) = rng.choice(&bytes.models).unwrap();
                let path = format!("{}?format=onnx", self.path());
                (client.request(Method::PUT, &path).body(bytes.clone()), json!(digest))
            }
            Self::Function(_) if is_there && rng.u8(..4) == 0 => delete(),
            Self::Function(_) if is_there && rng.bool() => {
                let mut after = before.clone();
                let revisions = before["revisions"].as_array().unwrap();
                let weight =
                    |shown: &Value| json!({ "revision": shown["revision"], "weight": rng.u32(1..100) });
                let traffic: Vec<Value> = revisions.iter().map(weight).collect();
                after["traffic"] = json!(traffic);
                let path = format!("{}/traffic", self.path());
                (client.request(Method::PUT, &path).json(&json!({ "traffic": traffic })), after)
            }
            Self::Function(name) => {
                let (bytes, digest) = rng.choice(&bytes.components).unwrap();
                // Never the same as the newest, which would be no change.
                let env = json!({ "A": rng.u64(..).to_string() });
                let mut revisions = before["revisions"].as_array().cloned().unwrap_or_default();
                let number = revisions.last().map_or(1, |newest| newest["revision"].as_u64().unwrap() + 1);
                revisions.push(json!({ "revision": number, "digest": digest, "env": env }));
                let after = json!({
                    "revisions": revisions, "traffic": [{ "revision": number, "weight": 100 }],
                });
                (client.deploying(name, bytes.clone(), &json!({ "env": env })), after)
            }
        }
    }
}

/// Things of one worker with the states that they may be in: one, or two for what was not acknowledged.
type States = BTreeMap<Thing, Vec<Value>>;

/// Changes things until the server is gone.
async fn change(
    mut states: States,
    mut rng: Rng,
    client: Client,
    bytes: Arc<Bytes>,
    acknowledged: mpsc::UnboundedSender<()>,
) -> States {
    loop {
        let things: Vec<Thing> = states.keys().cloned().collect();
        let thing = rng.choice(&things).unwrap();
        let before = states[thing][0].clone();
        let (request, after) = thing.change(&before, &mut rng, &client, &bytes);
        let status = match client.hear(request).await {
            Heard::Whole(answer) => {
                assert!((200..300).contains(&answer.status), "{thing:?} to {after}: {}", answer.text());
                Some(answer.status)
            }
            // The head of an answer is an acknowledgement.
            Heard::BrokenOff { status, .. } => status,
            Heard::Nothing(_) => None,
        };
        if status.is_none() {
            states.insert(thing.clone(), vec![before, after]);
            return states;
        }
        states.insert(thing.clone(), vec![after]);
        let _ = acknowledged.send(());
    }
}

/// Settles what the server says against what it may say, and gives the digests that are in use.
async fn settle(states: &mut States, client: &Client) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (thing, may) in states {
        let seen = thing.seen(client).await;
        assert!(may.contains(&seen), "{thing:?} is {seen}, and may be one of {may:#?}");
        match thing {
            Thing::Function(name) if !seen.is_null() => {
                for revision in seen["revisions"].as_array().unwrap() {
                    used.insert(revision["digest"].as_str().unwrap().to_owned());
                }
                let answer = client.send(client.call(name, "/", "")).await;
                assert_eq!(answer.text(), "Hello, world!\n", "{name}");
            }
            Thing::Model(_) if !seen.is_null() => drop(used.insert(seen.as_str().unwrap().to_owned())),
            _ => {}
        }
        *may = vec![seen];
    }
    used
}

/// That the data directory has these bytes, and no others.
fn check(data: &Path, used: &BTreeSet<String>) {
    let mut kept = BTreeSet::new();
    for file in std::fs::read_dir(data.join("blobs")).unwrap() {
        let path = file.unwrap().path();
        let name = format!("sha256:{}", path.file_name().unwrap().to_str().unwrap());
        assert_eq!(digest(&std::fs::read(&path).unwrap()), name, "its bytes are others");
        kept.insert(name);
    }
    assert_eq!(&kept, used);
    assert_eq!(std::fs::read_dir(data.join("tmp")).unwrap().count(), 0, "an upload is half there");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kills_at_random_points_every_acknowledged_change_is_there() {
    let (wanted, seed) = (setting("WEIR_CRASH_CHANGES", 500), setting("WEIR_CRASH_SEED", fastrand::u64(..)));
    println!("WEIR_CRASH_CHANGES={wanted} WEIR_CRASH_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let (data, bytes) = (tempfile::tempdir().unwrap(), Arc::new(Bytes::make()));
    let things = |worker: usize| {
        [
            Thing::Function(format!("f{worker}")),
            Thing::Function(format!("g{worker}")),
            Thing::Model(format!("m{worker}")),
            Thing::Tenant(format!("t{worker}")),
        ]
    };
    let mut states: Vec<States> = (0..WORKERS)
        .map(|worker| things(worker).map(|thing| (thing, vec![Value::Null])).into_iter().collect())
        .collect();
    let (mut changes, mut kills, mut open) = (0, 0, 0);
    loop {
        let server = Process::serve(data.path()).await;
        let client = Client::new(&server.url);
        let mut used = BTreeSet::new();
        for states in &mut states {
            open += states.values().filter(|may| may.len() > 1).count();
            used.append(&mut settle(states, &client).await);
        }
        let listed = client.get("/v1/functions").await.json["functions"].as_array().unwrap().len();
        let functions = states
            .iter()
            .flatten()
            .filter(|(thing, may)| matches!(thing, Thing::Function(_)) && !may[0].is_null());
        assert_eq!(listed, functions.count(), "a function is there that nobody made");
        check(data.path(), &used);
        let verified = server.command(&["audit", "verify"]).await;
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
        let head = String::from_utf8(verified.stdout).unwrap();
        let told: u64 = head.split(':').next().unwrap().parse().unwrap();
        assert!(told >= changes, "{changes} changes were acknowledged, and {told} are in the audit log");
        if changes >= wanted {
            println!("{changes} changes, {kills} kills, {open} changes that nobody was told of");
            return server.kill().await;
        }
        let (acknowledged, mut told) = mpsc::unbounded_channel();
        let workers: Vec<_> = states
            .drain(..)
            .map(|states| {
                let (rng, client, bytes) = (rng.fork(), client.clone(), Arc::clone(&bytes));
                tokio::spawn(change(states, rng, client, bytes, acknowledged.clone()))
            })
            .collect();
        drop(acknowledged);
        for _ in 0..rng.u64(0..30) {
            changes += u64::from(told.recv().await.is_some());
        }
        tokio::time::sleep(Duration::from_micros(rng.u64(0..GRACE))).await;
        server.kill().await;
        for worker in workers {
            states.push(worker.await.unwrap());
        }
        kills += 1;
        while told.recv().await.is_some() {
            changes += 1;
        }
    }
}
