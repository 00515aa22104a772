//! The hostile corpus: every behaviour gets what it must, and nobody else notices.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use weir_tests::corpus::{AT_REST, Corpus, settings};
use weir_tests::guests::{self, Behaviour};
use weir_tests::{Client, Heard, Process, until};

/// Calls the victim until told to stop; gives the number of calls, and what was wrong with any.
async fn call_victim(client: Client, caller: usize, stop: Arc<AtomicBool>) -> (usize, Vec<String>) {
    let (mut calls, mut wrong) = (0, vec![]);
    while !stop.load(Ordering::Relaxed) {
        let body = format!("caller {caller}, call {calls} {}", "x".repeat(calls * 37 % 5000));
        match client.hear(client.call("victim", "/", body.clone())).await {
            Heard::Whole(answer) if answer.status == 200 && answer.json["body"] == *body => {}
            other => wrong.push(format!("{other:?}")),
        }
        calls += 1;
    }
    (calls, wrong)
}

/// The longest file below a folder, in bytes.
fn longest(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => longest(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(size).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hostile_guest_gets_its_problem_and_the_victim_all_its_answers() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Process::serve_with(data.path(), &settings(120)).await;
    let client = Client::new(&server.url);
    let corpus = Arc::new(Corpus::deploy(&client).await.unwrap_or_else(|wrong| panic!("{wrong}")));
    let victim = std::fs::read(guests::ECHO).unwrap();
    let deployed = client.deploy("victim", victim, &json!({ "env": { "OWN": "victim" } })).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());

    let stop = Arc::new(AtomicBool::new(false));
    let victims: Vec<_> =
        (0..2).map(|caller| tokio::spawn(call_victim(client.clone(), caller, Arc::clone(&stop)))).collect();
    // One after another, so that what is seen is of one alone.
    let mut wrong = vec![];
    for behaviour in Behaviour::ALL {
        wrong.extend(corpus.run(behaviour).await.err());
    }
    let few = async || client.metric("weir_sandboxes").await <= 4.0;
    until("only the victim's sandboxes are there", few).await;
    let (files, threads) = (server.files(), server.threads());

    // All of them at once, twice: what is left over from each would be twice there.
    for _ in 0..2 {
        let together = Behaviour::ALL.map(|behaviour| {
            let corpus = Arc::clone(&corpus);
            tokio::spawn(async move { corpus.run(behaviour).await })
        });
        for run in together {
            wrong.extend(run.await.unwrap().err().map(|wrong| format!("with all others: {wrong}")));
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut calls = 0;
    for victim in victims {
        let (called, errors) = victim.await.unwrap();
        assert!(errors.is_empty(), "{} of {called} calls of the victim: {:?}", errors.len(), errors.first());
        calls += called;
    }
    assert!(calls > 0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(server.is_alive());
    assert_eq!(corpus.touched(), 0, "no guest came to where it may not go");

    until("the server is at rest", async || client.not_zero(&AT_REST).await.is_empty()).await;
    // Idle connections and threads of the runtime go after seconds.
    until("files are closed", async || server.files() <= files + 8).await;
    until("threads have ended", async || server.threads() <= threads + 4).await;
    let longest = longest(&data.path().join("logs"));
    assert!(longest <= (1 << 20) + (64 << 10), "a log file has {longest} bytes");
    println!("{} behaviours, {calls} calls of the victim, none wrong", Behaviour::ALL.len());
    server.kill().await;
}

/// Lets one function fill and another look, again and again; `callers` at a time.
async fn alternate(
    client: &Client,
    [fill, seek]: [&'static str; 2],
    [write, look]: [&'static str; 2],
    [wrote, finds]: [&'static str; 2],
    rounds: usize,
) {
    let callers = 8;
    let tasks = (0..callers).map(|caller| {
        let client = client.clone();
        tokio::spawn(async move {
            for round in 0..rounds / callers {
                let mib = 1 + (caller + round) % 8;
                for (function, path, said) in [(fill, write, wrote), (seek, look, finds)] {
                    let request = client.call(function, &format!("{path}?mib={mib}"), "");
                    match client.hear(request).await {
                        Heard::Whole(answer)
                            if (200..300).contains(&answer.status) && answer.text().starts_with(said) => {}
                        other => panic!("{function}, round {round} with {mib} MiB: {other:?}"),
                    }
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_sandbox_is_seen_by_the_next() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve_with(data.path(), &settings(120)).await;
    let client = Client::new(&server.url);
    let once = json!({ "limits": { "memory": "64MiB" } });
    let thrice = json!({ "limits": { "memory": "64MiB" }, "reuse": 3 });
    for (name, behaviour, config) in [
        ("fill", Behaviour::Fill, &once),
        ("seek", Behaviour::Seek, &once),
        ("fill-reused", Behaviour::Fill, &thrice),
        ("seek-reused", Behaviour::Seek, &thrice),
        ("fill-table", Behaviour::FillTable, &once),
        ("seek-table", Behaviour::SeekTable, &once),
    ] {
        let deployed = client.deploy(name, behaviour.component().bytes(), config).await;
        assert_eq!(deployed.status, 201, "{}", deployed.text());
    }
    // There is one tenant without keys; two functions stand for two.
    let paths = ["/fill", "/seek"];
    // Who fills looks too, and finds what it wrote: so looking finds what is there.
    let said = ["filled and found ", "found 0 in "];
    alternate(&client, ["fill", "seek"], paths, said, 2000).await;
    alternate(&client, ["fill-reused", "seek-reused"], paths, said, 800).await;
    alternate(&client, ["fill-table", "seek-table"], ["/", "/"], ["", ""], 800).await;
    server.kill().await;
}
