//! How a guest's outgoing `wasi:http` requests leave, if at all.
//!
//! Three walls, each on its own. The function's `egress` names the hosts, and none by default. A call may send so many
//! requests; refused ones count, so that probing ends too. And no request goes to an address of the node or of the
//! networks around it, whatever the host is called, unless the operator allows that address.
//!
//! The host is judged as the URL parser wrote it, which is also how it is sent: `0x7f.1` is `127.0.0.1` to both. A
//! name's addresses are judged when it is resolved for the connection, and only those that passed are connected to,
//! so no second answer can come between. A redirect is the guest's to follow, by a request like any other.
//!
//! Every request has a connection of its own, for what a server remembers of one must not meet another tenant. That
//! costs a handshake a request. The path is sent as the URL parser writes it (`/a/../b` as `/b`), and an `accept: */*`
//! where the guest has none, which means the same. Out of scope: the node's own public addresses.

mod address;
mod host;
mod outgoing;

use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body::{Body, Frame, SizeHint};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url, redirect, retry};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep, timeout};
use wasmtime_wasi_http::{DEFAULT_FORBIDDEN_HEADERS, Error, RequestOptions, WasiBody};

pub use address::AddressRules;
pub use host::HostPattern;
use host::literal;
pub use outgoing::{Outgoing, PIECE, Refusal};

/// How long a connection may take, with its name's resolution and TLS, where the guest says nothing.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an answer's head, and then each piece of its body, may take where the guest says nothing.
const READ: Duration = Duration::from_secs(60);
/// The most names resolved at a time. Each holds a thread of those that the whole server shares.
const LOOKUPS: usize = 64;

/// The resolver found addresses, and none of them may be reached.
#[derive(Debug, thiserror::Error)]
#[error("no address of this name may be reached")]
struct Prohibited;

/// A name has no address.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unresolved(String);

/// Gives the client the addresses that pass the rules, and no others.
struct Resolver {
    rules: Arc<AddressRules>,
    lookups: Arc<Semaphore>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(permitted(Arc::clone(&self.rules), Arc::clone(&self.lookups), name.as_str().to_owned()))
    }
}

async fn permitted(
    rules: Arc<AddressRules>,
    lookups: Arc<Semaphore>,
    name: String,
) -> Result<Addrs, Box<dyn StdError + Send + Sync>> {
    let permit = lookups.acquire_owned().await?;
    // A lookup holds its thread until it ends, even when its request is gone. So does the permit.
    let lookup = tokio::spawn(async move {
        let _permit = permit;
        tokio::net::lookup_host((name, 0)).await.map(Vec::from_iter)
    });
    let mut found: Vec<SocketAddr> = lookup.await?.map_err(|error| Unresolved(error.to_string()))?;
    if found.is_empty() {
        return Err(Unresolved("the name has no address".to_owned()).into());
    }
    found.retain(|address| rules.permits(address.ip()));
    if found.is_empty() {
        return Err(Prohibited.into());
    }
    Ok(Box::new(found.into_iter()))
}

/// The node's way out: one per server.
pub struct Egress {
    rules: Arc<AddressRules>,
    resolver: Arc<Resolver>,
    client: Client,
}

impl Egress {
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(rules: AddressRules) -> anyhow::Result<Self> {
        let rules = Arc::new(rules);
        let lookups = Arc::new(Semaphore::new(LOOKUPS));
        let resolver = Arc::new(Resolver { rules: Arc::clone(&rules), lookups });
        let client = client_of(&resolver, CONNECT)?;
        Ok(Self { rules, resolver, client })
    }

    /// Sends a request to any host whose address the rules permit.
    #[cfg(test)]
    async fn send(
        &self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
    ) -> Result<Response<WasiBody>, Error> {
        let url = target(request.uri())?;
        self.deliver(url, request, options).await
    }

    /// # Errors
    /// What `wasi:http` calls the reason; [`Error::DestinationIpProhibited`] when it is the rules.
    async fn deliver(
        &self,
        url: Url,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
    ) -> Result<Response<WasiBody>, Error> {
        // An address in the URL never comes to the resolver.
        let address = url.host_str().and_then(literal);
        if address.is_some_and(|address| !self.rules.permits(address)) {
            return Err(Error::DestinationIpProhibited);
        }
        let options = options.unwrap_or_default();
        let between = options.between_bytes_timeout.unwrap_or(READ);
        // The client takes this time once for all its requests, so a time of the guest's own needs a client of its own.
        let client = match options.connect_timeout {
            Some(connect) if connect != CONNECT => client_of(&self.resolver, connect)
                .map_err(|_| Error::InternalError(Some("no client for this connect timeout".to_owned())))?,
            _ => self.client.clone(),
        };
        let (parts, body) = request.into_parts();
        let mut headers = parts.headers;
        // What concerns one connection is the client's to say, and so is `host`.
        for name in DEFAULT_FORBIDDEN_HEADERS.into_iter().chain([header::TE]) {
            headers.remove(name);
        }
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = headers;
        *request.body_mut() = Some(reqwest::Body::wrap(Upload(Mutex::new(body))));
        // From the start, the connection included: when one is there is not told.
        let response = timeout(options.first_byte_timeout.unwrap_or(READ), client.execute(request))
            .await
            .map_err(|_| Error::ConnectionReadTimeout)?
            .map_err(|error| told(&error))?;
        let response = Response::<reqwest::Body>::from(response);
        Ok(response.map(|body| WasiBody::new(Download { body, between, waiting: None })))
    }
}

fn client_of(resolver: &Arc<Resolver>, connect: Duration) -> reqwest::Result<Client> {
    Client::builder()
        .use_rustls_tls()
        .http1_only()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .no_proxy()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .pool_max_idle_per_host(0)
        .connect_timeout(connect)
        .dns_resolver(Arc::clone(resolver))
        .build()
}

/// Where a request goes. This is what is judged and what is sent.
fn target(uri: &Uri) -> Result<Url, Error> {
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(Error::HttpRequestUriInvalid);
    };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    if authority.as_str().contains('@') || !path.starts_with(['/', '?']) {
        return Err(Error::HttpRequestUriInvalid);
    }
    Url::parse(&format!("{scheme}://{authority}{path}")).map_err(|_| Error::HttpRequestUriInvalid)
}

/// A guest's body on its way out. It is `Send` alone and the client asks for `Sync` too, which a lock makes up for.
struct Upload(Mutex<WasiBody>);

impl Body for Upload {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let body = self.get_mut().0.get_mut().unwrap_or_else(PoisonError::into_inner);
        Pin::new(body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).size_hint()
    }
}

/// An answer's body on its way in, with a limit on each wait. Only waiting for the server counts, not for the guest.
struct Download {
    body: reqwest::Body,
    between: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Body for Download {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.waiting = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| told(&error))));
        }
        let between = this.between;
        let waiting = this.waiting.get_or_insert_with(|| Box::pin(sleep(between)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Some(Err(Error::ConnectionReadTimeout)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A failure as `wasi:http` calls it.
fn told(error: &reqwest::Error) -> Error {
    let connecting = error.is_connect();
    if error.is_timeout() {
        return if connecting { Error::ConnectionTimeout } else { Error::ConnectionReadTimeout };
    }
    causes(error).find_map(|cause| known(cause, connecting)).unwrap_or(match () {
        () if error.is_builder() => Error::HttpRequestUriInvalid,
        () if connecting => Error::DestinationUnavailable,
        () => Error::HttpProtocolError,
    })
}

/// The error and all that caused it. What an `io::Error` wraps is not its source.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| match error.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().map(|inner| inner as &(dyn StdError + 'static)),
        None => error.source(),
    })
}

fn known(cause: &(dyn StdError + 'static), connecting: bool) -> Option<Error> {
    if cause.is::<Prohibited>() {
        return Some(Error::DestinationIpProhibited);
    }
    if let Some(Unresolved(why)) = cause.downcast_ref::<Unresolved>() {
        return Some(Error::DnsError { rcode: Some(why.clone()), info_code: None });
    }
    // The guest's own body failed.
    if let Some(error) = cause.downcast_ref::<Error>() {
        return Some(match error {
            Error::HttpRequestBodySize(size) => Error::HttpRequestBodySize(*size),
            other => Error::InternalError(Some(format!("the request's body failed: {other}"))),
        });
    }
    if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        return match () {
            () if error.is_incomplete_message() => Some(Error::HttpResponseIncomplete),
            () if error.is_parse_too_large() => Some(Error::HttpResponseHeaderSectionSize(None)),
            () if error.is_parse() => Some(Error::HttpProtocolError),
            () if error.is_canceled() || error.is_closed() => Some(Error::ConnectionTerminated),
            () => None,
        };
    }
    let error = cause.downcast_ref::<io::Error>()?;
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(Error::ConnectionRefused),
        io::ErrorKind::UnexpectedEof if !connecting => Some(Error::HttpResponseIncomplete),
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => Some(Error::ConnectionTerminated),
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::NotConnected => Some(Error::DestinationIpUnroutable),
        // rustls's errors come as this kind; their type is not ours to name.
        io::ErrorKind::InvalidData => Some(of_tls(&error.to_string())),
        _ => None,
    }
}

fn of_tls(text: &str) -> Error {
    if text.starts_with("invalid peer certificate") {
        return Error::TlsCertificateError;
    }
    match text.strip_prefix("received fatal alert: ") {
        Some(alert) => Error::TlsAlertReceived { alert_id: None, alert_message: Some(alert.to_owned()) },
        None => Error::TlsProtocolError,
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;
    use http_body_util::{BodyExt, Empty, StreamBody};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use wasmtime_wasi_http::WasiHttpHooks;

    use super::outgoing::Refused;
    use super::*;
    fn rules(allowed: &[&str]) -> AddressRules {
        AddressRules { allowed: allowed.iter().map(|network| network.parse().unwrap()).collect() }
    }

    fn local() -> Egress {
        Egress::new(rules(&["127.0.0.0/8"])).unwrap()
    }

    fn get(uri: &str) -> Request<WasiBody> {
        Request::get(uri).body(WasiBody::new(Empty::<Bytes>::new().map_err(Error::from))).unwrap()
    }

    async fn listen() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    /// Reads until `end`; what came.
    async fn read_to(stream: &mut TcpStream, end: &str) -> String {
        let mut came = Vec::new();
        while !came.ends_with(end.as_bytes()) {
            came.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(came).unwrap()
    }

    /// Answers one request with `answer`, and gives back what was asked and the connection.
    async fn answer(listener: &TcpListener, answer: &str) -> (String, TcpStream) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let asked = read_to(&mut stream, "\r\n\r\n").await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        (asked, stream)
    }

    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

    #[tokio::test]
    async fn an_address_of_the_node_is_reached_by_no_spelling_unless_it_is_allowed() {
        let (listener, port) = listen().await;
        let spellings = [
            "localhost",
            "LOCALHOST",
            "127.0.0.1",
            "0x7f000001",
            "2130706433",
            "127.1",
            "0177.0.0.1",
            "0x7f.1",
        ];
        let public = Egress::new(AddressRules::default()).unwrap();
        for host in spellings.into_iter().chain(["0", "[::1]", "[::ffff:127.0.0.1]", "[::]", "[::7f00:1]"]) {
            let error = public.send(get(&format!("http://{host}:{port}/")), None).await.unwrap_err();
            assert!(matches!(error, Error::DestinationIpProhibited), "{host}: {error}");
        }
        let accepted = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(accepted.is_err(), "something connected");
        let local = local();
        for host in spellings {
            let request = get(&format!("http://{host}:{port}/"));
            let (response, _) = tokio::join!(local.send(request, None), answer(&listener, OK));
            let body = response.unwrap().into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, "ok", "{host}");
        }
    }

    #[tokio::test]
    async fn every_attempt_counts_and_every_refusal_is_told() {
        let (listener, port) = listen().await;
        let told = Arc::new(Mutex::new(Vec::new()));
        let refused: Refused = {
            let told = Arc::clone(&told);
            Arc::new(move |refusal: Refusal| told.lock().unwrap().push(refusal.to_string()))
        };
        let hosts: Vec<HostPattern> = [format!("127.0.0.1:{port}"), format!("[::1]:{port}")]
            .iter()
            .map(|h| h.parse().unwrap())
            .collect();
        let mut outgoing = Outgoing::new(Arc::new(local()), hosts.into(), 3, refused);
        let mut send = |host: &str| {
            let done = Box::new(std::future::ready(Ok(())));
            let sent = outgoing.send_request(get(&format!("http://{host}:{port}/")), None, done);
            (Box::into_pin(sent), outgoing.left)
        };
        let other = send("localhost").0.await.err().unwrap();
        assert!(matches!(other, Error::HttpRequestDenied), "{other}");
        let prohibited = send("[::1]").0.await.err().unwrap();
        assert!(matches!(prohibited, Error::DestinationIpProhibited), "{prohibited}");
        let (third, left) = send("127.0.0.1");
        let (third, _) = tokio::join!(third, answer(&listener, OK));
        assert_eq!((third.ok().unwrap().0.status().as_u16(), left), (200, 0));
        let fourth = send("127.0.0.1").0.await.err().unwrap();
        assert!(matches!(fourth, Error::ConnectionLimitReached), "{fourth}");
        assert_eq!(
            *told.lock().unwrap(),
            [
                format!("denied a request to `localhost:{port}`: the function's `egress` does not name it"),
                format!("denied a request to `[::1]:{port}`: functions may not reach its address"),
                "denied a request: the call has sent 3, the most that it may".to_owned(),
            ]
        );
        outgoing.begin(None, None);
        assert_eq!(outgoing.left, 3);
    }

    #[tokio::test]
    async fn requests_and_redirects_pass_as_they_are() {
        let (listener, port) = listen().await;
        let mut request = get(&format!("http://127.0.0.1:{port}/a?b=c"));
        *request.method_mut() = "PURGE".parse().unwrap();
        for (name, value) in [("x-own", "1"), ("x-own", "2"), ("te", "trailers"), ("host", "elsewhere")] {
            request.headers_mut().append(name, value.parse().unwrap());
        }
        let egress = local();
        let found = "HTTP/1.1 302 Found\r\nlocation: http://10.0.0.1/\r\ncontent-length: 0\r\n\r\n";
        let (response, (asked, _)) = tokio::join!(egress.send(request, None), answer(&listener, found));
        let response = response.unwrap();
        assert_eq!(response.status().as_u16(), 302);
        assert_eq!(response.headers()["location"], "http://10.0.0.1/");
        let mut lines: Vec<&str> = asked.trim_end().lines().collect();
        assert_eq!(lines.remove(0), "PURGE /a?b=c HTTP/1.1");
        lines.sort_unstable();
        assert_eq!(lines, ["accept: */*", &format!("host: 127.0.0.1:{port}"), "x-own: 1", "x-own: 2"]);
    }

    #[tokio::test]
    async fn bodies_stream_both_ways_at_once() {
        let (listener, port) = listen().await;
        let (chunks, body) = mpsc::unbounded::<Result<Frame<Bytes>, Error>>();
        let put =
            |text: &'static str| chunks.unbounded_send(Ok(Frame::data(Bytes::from_static(text.as_bytes()))));
        put("one").unwrap();
        let uri = format!("http://127.0.0.1:{port}/");
        let request = Request::post(uri).body(WasiBody::new(StreamBody::new(body))).unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_to(&mut stream, "3\r\none\r\n").await;
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nuno\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            stream
        };
        let egress = local();
        let (response, mut stream) = tokio::join!(egress.send(request, None), server);
        let mut body = response.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "uno");
        put("two").unwrap();
        drop(chunks);
        assert_eq!(read_to(&mut stream, "0\r\n\r\n").await, "3\r\ntwo\r\n0\r\n\r\n");
        stream.write_all(b"3\r\ndos\r\n0\r\n\r\n").await.unwrap();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "dos");
    }

    #[tokio::test]
    async fn failures_have_the_names_that_guests_know() {
        let (listener, port) = listen().await;
        let egress = local();
        let uri = format!("http://127.0.0.1:{port}/");
        let brief = Some(Duration::from_millis(50));
        let options = RequestOptions { first_byte_timeout: brief, ..RequestOptions::default() };
        let silent = egress.send(get(&uri), Some(options)).await.unwrap_err();
        assert!(matches!(silent, Error::ConnectionReadTimeout), "{silent}");
        drop(listener.accept().await.unwrap());

        // The server stops within the body: first it stays silent, then it goes.
        let half = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nok";
        let options = RequestOptions { between_bytes_timeout: brief, ..RequestOptions::default() };
        let (response, held) = tokio::join!(egress.send(get(&uri), Some(options)), answer(&listener, half));
        let error = response.unwrap().into_body().collect().await.unwrap_err();
        assert!(matches!(error, Error::ConnectionReadTimeout), "{error}");
        drop(held);
        let (response, gone) = tokio::join!(egress.send(get(&uri), None), answer(&listener, half));
        drop(gone);
        let error = response.unwrap().into_body().collect().await.unwrap_err();
        assert!(matches!(error, Error::HttpResponseIncomplete), "{error}");

        let plain = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(OK.as_bytes()).await.unwrap();
            stream
        };
        let secure = get(&format!("https://127.0.0.1:{port}/"));
        let (response, _stream) = tokio::join!(egress.send(secure, None), plain);
        let error = response.unwrap_err();
        assert!(matches!(error, Error::TlsProtocolError), "{error}");
        assert!(matches!(of_tls("invalid peer certificate: Expired"), Error::TlsCertificateError));

        drop(listener);
        let options = RequestOptions { connect_timeout: Some(READ), ..RequestOptions::default() };
        let error = egress.send(get(&uri), Some(options)).await.unwrap_err();
        assert!(matches!(error, Error::ConnectionRefused), "{error}");
        for uri in ["/", "ftp://127.0.0.1/", "http://user@127.0.0.1/", "http://256.0.0.1/"] {
            let error = egress.send(get(uri), None).await.unwrap_err();
            assert!(matches!(error, Error::HttpRequestUriInvalid), "{uri}: {error}");
        }
    }
}
