//! Outgoing requests: to whom, to which addresses, and how many.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use weir_tests::{Answer, Server, guests, until};

/// A server outside Weir that counts its requests and answers each with the same words.
struct Outside {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

async fn outside(answer: impl Into<String>) -> Outside {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let (count, answer) = (Arc::clone(&asked), answer.into());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let mut head = vec![0; 4096];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    Outside { address, asked }
}

const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A server whose operator allows functions to reach this machine.
async fn open() -> Server {
    Server::with(|settings| settings.egress.allow = vec!["127.0.0.0/8".parse().unwrap()]).await
}

async fn fetch(server: &Server, url: &str, times: u32) -> Answer {
    server.call("trouble", &format!("/fetch={times}"), url.to_owned()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_to_the_hosts_that_are_named_and_no_others() {
    let (server, outside) = (open().await, outside(FINE).await);
    let port = outside.address.port();
    let deploy = async |egress: &[String]| {
        let deployed = server.deploy("trouble", guests::TROUBLE, json!({ "egress": egress })).await;
        assert_eq!(deployed.status, 201, "{}", deployed.text());
    };
    deploy(&[]).await;
    let url = format!("http://localhost:{port}/");
    assert!(fetch(&server, &url, 1).await.text().contains("HttpRequestDenied"));
    deploy(&["localhost".to_owned()]).await;
    assert!(fetch(&server, &url, 1).await.text().contains("HttpRequestDenied"), "the port is another");
    assert_eq!(outside.asked.load(Ordering::Relaxed), 0);
    deploy(&[format!("localhost:{port}")]).await;
    assert!(fetch(&server, &url, 1).await.text().starts_with("200"));
    assert_eq!(outside.asked.load(Ordering::Relaxed), 1);
    for other in
        ["http://localhost.evil.example/", "http://127.0.0.1/", "ftp://localhost/", "https://localhost/"]
    {
        let said = fetch(&server, other, 1).await.text();
        assert!(said.contains("Denied") || said.contains("Invalid"), "{other}: {said}");
    }
    assert_eq!(outside.asked.load(Ordering::Relaxed), 1);
    until("refusals are in the log", async || {
        server.log("trouble").await.iter().any(|line| line.contains("`egress` does not name it"))
    })
    .await;
    assert!(server.metric("weir_egress_refused_total").await >= 4.0);
    let refused = server.deploy("trouble", guests::TROUBLE, json!({ "egress": ["http://x.example"] })).await;
    assert_eq!((refused.status, refused.code()), (422, "invalid_config"), "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_the_machine_and_its_networks_are_not_reached_by_any_name() {
    // Its operator allows nothing.
    let (server, outside) = (Server::start().await, outside(FINE).await);
    let port = outside.address.port();
    let names = [
        "localhost",
        "127.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "169.254.169.254",
        "10.0.0.1",
        "[fd00:ec2::254]",
    ];
    let mut egress: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
    egress.push("0.0.0.0".to_owned());
    let config = json!({ "egress": egress, "limits": { "outbound_requests": 100 } });
    assert_eq!(server.deploy("trouble", guests::TROUBLE, config).await.status, 201);
    let others = ["2130706433", "0x7f.1", "0177.0.0.1", "127.1"];
    for name in names.iter().chain(&others) {
        let said = fetch(&server, &format!("http://{name}:{port}/"), 1).await.text();
        assert!(said.contains("DestinationIpProhibited"), "{name}: {said}");
    }
    assert_eq!(outside.asked.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_a_request_like_any_other() {
    let (server, secret) = (open().await, outside(FINE).await);
    let to = format!("http://localhost:{}/secret", secret.address.port());
    let redirects =
        outside(format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")).await;
    let from = format!("localhost:{}", redirects.address.port());
    server.deploy("trouble", guests::TROUBLE, json!({ "egress": [from] })).await;
    let said = fetch(&server, &format!("http://{from}/"), 1).await.text();
    assert_eq!(said.trim(), format!("302 {to}"), "nobody follows it for the guest");
    assert!(fetch(&server, &to, 1).await.text().contains("HttpRequestDenied"));
    assert_eq!(secret.asked.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn outgoing_requests_up_to_the_limit_and_no_more() {
    let (server, outside) = (open().await, outside(FINE).await);
    let host = format!("localhost:{}", outside.address.port());
    let config = json!({ "egress": [host], "limits": { "outbound_requests": 3 } });
    server.deploy("trouble", guests::TROUBLE, config).await;
    let url = format!("http://{host}/");
    for _ in 0..2 {
        let said = fetch(&server, &url, 3).await.text();
        assert_eq!(said.matches("200").count(), 3, "each call has its own: {said}");
    }
    let said = fetch(&server, &url, 5).await.text();
    assert_eq!(
        (said.matches("200").count(), said.matches("ConnectionLimitReached").count()),
        (3, 2),
        "{said}"
    );
    assert_eq!(outside.asked.load(Ordering::Relaxed), 9);
    assert_eq!(server.metric("weir_limits_total{limit=\"limits.outbound_requests\"}").await, 1.0);
    until("the log says so", async || {
        server.log("trouble").await.iter().any(|line| line.contains("has sent 3, the most that it may"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ends_ends_its_outgoing_request() {
    // Takes the request and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("localhost:{}", listener.local_addr().unwrap().port());
    let server = open().await;
    server.deploy("trouble", guests::TROUBLE, json!({ "egress": [host], "request_timeout": "300ms" })).await;
    let url = format!("http://{host}/");
    let call = fetch(&server, &url, 1);
    let (answer, hung_up) = tokio::join!(call, async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut all = vec![];
        stream.read_to_end(&mut all).await.unwrap();
        all
    });
    assert_eq!(answer.code(), "request_timeout", "{}", answer.text());
    assert!(String::from_utf8_lossy(&hung_up).starts_with("GET / HTTP/1.1"));
}
