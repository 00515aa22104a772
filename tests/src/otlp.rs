//! A receiver of OpenTelemetry's protocol, made of its official messages: over gRPC or HTTP, and as unwilling as it is told.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

/// What a receiver does with one request for traces. Logs and metrics it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Take,
    /// It takes the batch but for so many spans.
    Partial(i64),
    /// It cannot now: `UNAVAILABLE`, or 503.
    Unavailable,
    /// It is asked too often: 429, to be asked again after so many seconds.
    Busy(u64),
    /// It never will: `INVALID_ARGUMENT`, or 400.
    Refuse,
    /// It says nothing.
    Stall,
}

/// A receiver on a port of its own, until it is dropped.
pub struct Receiver {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    replies: VecDeque<Reply>,
    always: Option<Reply>,
    requests: usize,
    headers: BTreeMap<String, String>,
    traces: Vec<ExportTraceServiceRequest>,
    metrics: Vec<ExportMetricsServiceRequest>,
    logs: Vec<ExportLogsServiceRequest>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    pub async fn grpc() -> Self {
        Self::grpc_with(None).await
    }

    /// One that speaks TLS, with a certificate and its key (PEM).
    pub async fn grpc_tls(cert: &str, key: &str) -> Self {
        Self::grpc_with(Some(ServerTlsConfig::new().identity(Identity::from_pem(cert, key)))).await
    }

    async fn grpc_with(tls: Option<ServerTlsConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let service = Service(Arc::clone(&state));
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        let serving = server
            .add_service(TraceServiceServer::new(service.clone()))
            .add_service(MetricsServiceServer::new(service.clone()))
            .add_service(LogsServiceServer::new(service))
            .serve_with_incoming(TcpIncoming::from(listener));
        let task = tokio::spawn(async move { serving.await.unwrap() });
        Self { address, state, task }
    }

    pub async fn http() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let service = Service(Arc::clone(&state));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(service.clone().connection(stream));
            }
        });
        Self { address, state, task }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What it does with the next requests for traces, one after another.
    pub fn reply(&self, replies: &[Reply]) {
        self.state().replies.extend(replies);
    }

    /// What it does with all others.
    pub fn always(&self, reply: Reply) {
        self.state().always = Some(reply);
    }

    /// Requests for traces that have come, taken or not.
    pub fn requests(&self) -> usize {
        self.state().requests
    }

    /// A header of the last of them.
    pub fn header(&self, name: &str) -> Option<String> {
        self.state().headers.get(name).cloned()
    }

    /// All spans that it has taken.
    pub fn spans(&self) -> Vec<Span> {
        let state = self.state();
        let all = state.traces.iter().flat_map(|request| &request.resource_spans);
        all.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }

    /// What the spans that it has taken are of.
    pub fn resource(&self) -> Option<Resource> {
        self.state().traces.first()?.resource_spans.first()?.resource.clone()
    }

    pub fn logs(&self) -> Vec<LogRecord> {
        let state = self.state();
        let all = state.logs.iter().flat_map(|request| &request.resource_logs);
        all.flat_map(|resource| &resource.scope_logs).flat_map(|scope| scope.log_records.clone()).collect()
    }

    pub fn metrics(&self) -> Vec<Metric> {
        let state = self.state();
        let all = state.metrics.iter().flat_map(|request| &request.resource_metrics);
        all.flat_map(|resource| &resource.scope_metrics).flat_map(|scope| scope.metrics.clone()).collect()
    }

    /// Waits until it has a span with this name, and gives it.
    pub async fn span(&self, name: &str) -> Span {
        let find = || self.spans().into_iter().find(|span| span.name == name);
        crate::until(&format!("there is a span {name:?}"), async || find().is_some()).await;
        find().unwrap()
    }
}

/// Attributes as texts.
pub fn attributes(of: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |pair: &KeyValue| match pair.value.clone().and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(truth)) => truth.to_string(),
        other => format!("{other:?}"),
    };
    of.iter().map(|pair| (pair.key.as_str(), text(pair))).collect()
}

/// The text of a log record.
pub fn body(record: &LogRecord) -> String {
    match record.body.clone().and_then(|body| body.value) {
        Some(Value::StringValue(text)) => text,
        other => format!("{other:?}"),
    }
}

#[derive(Clone)]
struct Service(Arc<Mutex<State>>);

impl Service {
    /// What is to be done with a request for traces.
    async fn next(&self, headers: BTreeMap<String, String>) -> Reply {
        let reply = {
            let mut state = self.0.lock().unwrap();
            state.requests += 1;
            state.headers = headers;
            let always = state.always.unwrap_or(Reply::Take);
            state.replies.pop_front().unwrap_or(always)
        };
        if reply == Reply::Stall {
            std::future::pending::<()>().await;
        }
        reply
    }

    /// Serves a connection of HTTP/1.1 as far as the exporter speaks it.
    async fn connection(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = vec![];
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|bytes| bytes > 2) {
                head.push(line.trim().to_owned());
                line.clear();
            }
            if head.is_empty() {
                return;
            }
            let headers: BTreeMap<String, String> = head[1..]
                .iter()
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let mut message = vec![0; headers["content-length"].parse().unwrap()];
            stream.read_exact(&mut message).await.unwrap();
            let path = head[0].split(' ').nth(1).unwrap().to_owned();
            let (status, more, answer) = self.answer(&path, headers, &message).await;
            let answer_head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/x-protobuf\r\n{more}content-length: {}\r\n\r\n",
                answer.len()
            );
            stream.write_all(&[answer_head.as_bytes(), &answer].concat()).await.unwrap();
        }
    }

    async fn answer(
        &self,
        path: &str,
        headers: BTreeMap<String, String>,
        message: &[u8],
    ) -> (&'static str, String, Vec<u8>) {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        match path {
            "/v1/traces" => match self.next(headers).await {
                Reply::Unavailable => ("503 Service Unavailable", String::new(), vec![]),
                Reply::Busy(seconds) => {
                    ("429 Too Many Requests", format!("retry-after: {seconds}\r\n"), vec![])
                }
                Reply::Refuse => ("400 Bad Request", String::new(), b"\x12\x05never".to_vec()),
                reply => {
                    let answer = self.traces(ExportTraceServiceRequest::decode(message).unwrap(), reply);
                    ("200 OK", String::new(), answer.encode_to_vec())
                }
            },
            "/v1/metrics" => {
                self.0.lock().unwrap().metrics.push(ExportMetricsServiceRequest::decode(message).unwrap());
                ("200 OK", String::new(), vec![])
            }
            "/v1/logs" => {
                self.0.lock().unwrap().logs.push(ExportLogsServiceRequest::decode(message).unwrap());
                ("200 OK", String::new(), vec![])
            }
            other => panic!("{other}"),
        }
    }

    fn traces(&self, request: ExportTraceServiceRequest, reply: Reply) -> ExportTraceServiceResponse {
        self.0.lock().unwrap().traces.push(request);
        let partial_success = match reply {
            Reply::Partial(rejected_spans) => {
                Some(ExportTracePartialSuccess { rejected_spans, error_message: "too old".to_owned() })
            }
            _ => None,
        };
        ExportTraceServiceResponse { partial_success }
    }
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        let headers = headers
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        match self.next(headers).await {
            Reply::Unavailable => Err(Status::unavailable("not now")),
            Reply::Busy(_) => Err(Status::resource_exhausted("too often")),
            Reply::Refuse => Err(Status::invalid_argument("never")),
            reply => Ok(Response::new(self.traces(request.into_inner(), reply))),
        }
    }
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.0.lock().unwrap().metrics.push(request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Service {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.0.lock().unwrap().logs.push(request.into_inner());
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}
