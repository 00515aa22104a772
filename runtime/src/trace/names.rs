//! The names of all that traces and logs say, in one place.
//!
//! Those without `weir.` are of OpenTelemetry's semantic conventions, in the version of [`SCHEMA`].

/// The conventions that the names are of.
pub const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";
/// Who made the spans and log records.
pub const SCOPE: &str = "weir";

// The resource.
pub const SERVICE_NAME: &str = "service.name";
pub const SERVICE_VERSION: &str = "service.version";
pub const SERVICE_INSTANCE: &str = "service.instance.id";

// Spans.
pub const SPAN_HELD: &str = "held";
pub const SPAN_STARTUP: &str = "startup";
pub const SPAN_CODE: &str = "startup code";
pub const SPAN_SANDBOX: &str = "sandbox";
pub const SPAN_LOAD: &str = "load";
pub const SPAN_QUEUE: &str = "queue";
pub const SPAN_INFERENCE: &str = "inference";
/// The event that a line of the function's log is.
pub const EVENT_LOG: &str = "log";

// HTTP.
pub const METHOD: &str = "http.request.method";
pub const METHOD_ORIGINAL: &str = "http.request.method_original";
/// In place of a method that is none of HTTP's own.
pub const METHOD_OTHER: &str = "_OTHER";
pub const ROUTE: &str = "http.route";
pub const STATUS: &str = "http.response.status_code";
pub const PATH: &str = "url.path";
pub const SCHEME: &str = "url.scheme";
pub const SERVER_ADDRESS: &str = "server.address";
pub const SERVER_PORT: &str = "server.port";
pub const CLIENT_ADDRESS: &str = "client.address";
pub const PROTOCOL_VERSION: &str = "network.protocol.version";
pub const USER_AGENT: &str = "user_agent.original";
pub const ERROR_TYPE: &str = "error.type";

// Functions.
pub const FAAS_NAME: &str = "faas.name";
pub const FAAS_VERSION: &str = "faas.version";
pub const FAAS_TRIGGER: &str = "faas.trigger";
pub const FAAS_TRIGGER_HTTP: &str = "http";
pub const FAAS_COLDSTART: &str = "faas.coldstart";
pub const FAAS_INVOCATION: &str = "faas.invocation_id";

// Logs.
pub const LOG_STREAM: &str = "log.iostream";
pub const EXCEPTION: &str = "exception.message";

// Weir's own.
pub const TENANT: &str = "weir.tenant";
pub const FUNCTION: &str = "weir.function";
pub const REVISION: &str = "weir.revision";
pub const CALL: &str = "weir.call";
pub const KEY: &str = "weir.key";
pub const CLASS: &str = "weir.class";
pub const OUTCOME: &str = "weir.outcome";
pub const CODE: &str = "weir.code";
pub const MODEL: &str = "weir.model";
pub const DEVICE: &str = "weir.device";
pub const TARGET: &str = "weir.log.target";
pub const LOG_TEXT: &str = "weir.log.text";
/// Spans of the call that were too many.
pub const DROPPED_SPANS: &str = "weir.dropped_spans";
pub const QUEUE_NS: &str = "weir.inference.queue_ns";
pub const DEVICE_NS: &str = "weir.inference.device_ns";
pub const ROWS: &str = "weir.inference.rows";
pub const BATCH_ROWS: &str = "weir.inference.batch_rows";
pub const PADDING_ROWS: &str = "weir.inference.padding_rows";
pub const OPERATORS: &str = "weir.inference.operators";

/// The billing figures: the usage record's own, by its fields' names.
pub const USAGE_ID: &str = "weir.usage.id";
pub const USAGE_WALL: &str = "weir.usage.wall_ns";
pub const USAGE_HELD: &str = "weir.usage.held_ns";
pub const USAGE_STARTUP: &str = "weir.usage.startup_ns";
pub const USAGE_QUEUE: &str = "weir.usage.queue_ns";
pub const USAGE_INFERENCE: &str = "weir.usage.inference_ns";
pub const USAGE_GUEST: &str = "weir.usage.guest_ns";
pub const USAGE_GUEST_CPU: &str = "weir.usage.guest_cpu_ns";
pub const USAGE_HOST_MEMORY: &str = "weir.usage.host_memory_byte_ms";
pub const USAGE_REQUEST: &str = "weir.usage.request_bytes";
pub const USAGE_RESPONSE: &str = "weir.usage.response_bytes";
pub const USAGE_EGRESS: &str = "weir.usage.egress_bytes";
pub const USAGE_DEVICE: &str = "weir.usage.device_ns";
pub const USAGE_DEVICE_MEMORY: &str = "weir.usage.memory_byte_ms";
pub const USAGE_LOAD: &str = "weir.usage.load_ns";
pub const USAGE_INFERENCES: &str = "weir.usage.inferences";
pub const USAGE_ROWS: &str = "weir.usage.rows";
pub const USAGE_PADDING: &str = "weir.usage.padding_rows";
