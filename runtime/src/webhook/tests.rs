use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::*;
use crate::config::MeteringConfig;
use crate::meter::clock::tests::Set;
use crate::meter::totals::tests::{call, with_use};

/// An hour's start: 2027-01-15T08:00:00Z.
const HOUR_MS: u64 = 1_800_000_000_000;

/// A request that came.
type Came = (HeaderMap, Bytes);

/// What came, and how the next ones are answered.
#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<(Vec<Came>, Vec<StatusCode>)>>);

impl Receiver {
    async fn start(&self) -> String {
        async fn take(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
            let (came, answers) = &mut *receiver.0.lock().unwrap();
            came.push((headers, body));
            if answers.is_empty() { StatusCode::NO_CONTENT } else { answers.remove(0) }
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let router = Router::new().route("/events", post(take)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    /// How the next ones are answered.
    fn answers(&self, status: &[StatusCode]) {
        self.0.lock().unwrap().1.extend(status);
    }

    /// What has come since the last time.
    fn came(&self) -> Vec<(HeaderMap, Value)> {
        let came = std::mem::take(&mut self.0.lock().unwrap().0);
        came.into_iter().map(|(headers, body)| (headers, serde_json::from_slice(&body).unwrap())).collect()
    }
}

fn ids(came: &[(HeaderMap, Value)]) -> Vec<&str> {
    came.iter().map(|(_, event)| event["id"].as_str().unwrap()).collect()
}

struct Bench {
    data: tempfile::TempDir,
    store: Store,
    clocks: Set,
    meter: Meter,
    receiver: Receiver,
    config: WebhookConfig,
}

impl Bench {
    async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(data.path(), &[]).await.unwrap();
        let clocks = Set::at(HOUR_MS);
        let sources = Box::new(clocks.clone());
        let summed = store.usage_position().await.unwrap();
        let meter = Meter::open_with(sources, data.path(), summed, &MeteringConfig::default()).unwrap();
        let receiver = Receiver::default();
        let config = WebhookConfig { url: Some(receiver.start().await), ..WebhookConfig::default() };
        Self { data, store, clocks, meter, receiver, config }
    }

    fn webhook(&self) -> Arc<Webhook> {
        Webhook::new(&self.config).unwrap().unwrap()
    }

    fn call(&self, tenant: &str) {
        self.meter.record(&mut call(tenant, 0, 0)).unwrap();
    }

    async fn send(&self, webhook: &Webhook) -> Result<(), Unsent> {
        webhook.send_closed(&self.meter, &self.store).await
    }
}

#[tokio::test]
async fn an_hour_is_told_once_it_is_over_and_only_once() {
    let bench = Bench::new().await;
    let webhook = bench.webhook();
    bench.send(&webhook).await.unwrap();
    bench.call("acme");
    bench.call("acme");
    bench.meter.record(&mut with_use(call("other", 0, 0), "cpu", "m", 7)).unwrap();
    bench.send(&webhook).await.unwrap();
    assert_eq!(bench.receiver.came().len(), 0, "the hour goes on");
    bench.clocks.pass(HOUR);
    bench.call("acme");
    bench.send(&webhook).await.unwrap();
    let came = bench.receiver.came();
    assert_eq!(ids(&came), ["2027-01-15T08:00:00Z/acme/1", "2027-01-15T08:00:00Z/other/1"]);
    let (headers, event) = &came[0];
    assert_eq!(headers["content-type"], "application/cloudevents+json; charset=utf-8");
    assert!(!headers.contains_key(SIGNATURE));
    for (field, value) in [
        ("specversion", "1.0"),
        ("type", "weir.usage.hour.v1"),
        ("subject", "acme"),
        ("time", "2027-01-15T09:00:00Z"),
    ] {
        assert_eq!(event[field], value);
    }
    let data = &event["data"];
    assert_eq!((&data["from"], &data["to"]), (&"2027-01-15T08:00:00Z".into(), &event["time"]));
    let row = &data["rows"][0];
    assert_eq!((&row["sums"]["calls"], &row["by"]["function"]), (&2.into(), &"f".into()));
    let rows = came[1].1["data"]["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["by"]["model"] == "m" && row["sums"]["device_ns"] == 7), "{rows:?}");
    bench.send(&webhook).await.unwrap();
    assert_eq!(bench.receiver.came().len(), 0);
    assert_eq!((webhook.counts().taken(), webhook.counts().behind()), (2, 0));

    // Another start of the server goes on where that one was, and skips hours in which nothing was used.
    bench.clocks.pass(5 * HOUR);
    bench.send(&bench.webhook()).await.unwrap();
    assert_eq!(ids(&bench.receiver.came()), ["2027-01-15T09:00:00Z/acme/1"]);
}

#[tokio::test]
async fn what_is_not_taken_is_sent_again_and_nothing_after_it_before() {
    let bench = Bench::new().await;
    let webhook = bench.webhook();
    bench.send(&webhook).await.unwrap();
    bench.call("acme");
    bench.call("other");
    bench.clocks.pass(HOUR);
    bench.call("acme");
    bench.clocks.pass(HOUR);
    bench.receiver.answers(&[StatusCode::OK, StatusCode::INTERNAL_SERVER_ERROR]);
    let error = bench.send(&webhook).await.unwrap_err().to_string();
    assert!(error.contains("500"), "{error}");
    assert_eq!((webhook.counts().taken(), webhook.counts().failed(), webhook.counts().behind()), (1, 1, 2));
    bench.receiver.answers(&[StatusCode::FOUND]);
    assert!(bench.send(&webhook).await.is_err(), "it goes nowhere else");
    bench.receiver.came();
    bench.send(&webhook).await.unwrap();
    let (first, second) = ("2027-01-15T08:00:00Z", "2027-01-15T09:00:00Z");
    let expected = [format!("{first}/acme/1"), format!("{first}/other/1"), format!("{second}/acme/1")];
    assert_eq!(ids(&bench.receiver.came()), expected);
    assert_eq!(webhook.counts().behind(), 0);
}

#[tokio::test]
async fn an_hour_with_many_rows_is_in_parts_that_are_the_same_each_time() {
    let mut bench = Bench::new().await;
    bench.config.rows = 2;
    let webhook = bench.webhook();
    bench.send(&webhook).await.unwrap();
    for number in 0..5 {
        let mut record = call("acme", 0, 0);
        record.function = Some(format!("f{number}").into());
        bench.meter.record(&mut record).unwrap();
    }
    bench.clocks.pass(HOUR);
    bench.receiver.answers(&[StatusCode::OK, StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE]);
    assert!(bench.send(&webhook).await.is_err());
    let first = bench.receiver.came();
    bench.send(&webhook).await.unwrap();
    let second = bench.receiver.came();
    let bodies =
        |came: &[(HeaderMap, Value)]| -> Vec<Value> { came.iter().map(|(_, event)| event.clone()).collect() };
    assert_eq!(bodies(&first), bodies(&second));
    let rows: Vec<usize> =
        second.iter().map(|(_, event)| event["data"]["rows"].as_array().unwrap().len()).collect();
    assert_eq!(rows, [2, 2, 1]);
    assert!(second.iter().all(|(_, event)| event["data"]["parts"] == 3));
}

#[tokio::test]
async fn events_are_signed_as_the_standard_has_it() {
    let mut bench = Bench::new().await;
    let file = bench.data.path().join("secret");
    for wrong in ["", "s3cret", "whsec_c2hvcnQ=", "whsec_!!"] {
        std::fs::write(&file, wrong).unwrap();
        bench.config.secret_file = Some(file.clone());
        let error = format!("{:#}", Webhook::new(&bench.config).err().unwrap());
        assert!(error.contains("webhook.secret_file") && !error.contains("s3cret"), "{error}");
    }
    // The example of the standard's own libraries.
    std::fs::write(&file, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let signer = Signer::read(&file).unwrap();
    let signed = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
    assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    let webhook = bench.webhook();
    bench.send(&webhook).await.unwrap();
    bench.call("acme");
    bench.clocks.pass(HOUR);
    bench.send(&webhook).await.unwrap();
    let (headers, body) = bench.receiver.0.lock().unwrap().0.remove(0);
    let (id, time) = (headers[ID].to_str().unwrap(), headers[TIMESTAMP].to_str().unwrap());
    assert_eq!(headers[SIGNATURE], signer.sign(id, time.parse().unwrap(), &body));
}
