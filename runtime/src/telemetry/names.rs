//! Every metric: its name, what it is, its labels and its help, in one table. `docs/observability.md` has the same, which a test
//! compares.
//!
//! Names follow Prometheus' conventions: base units as a suffix, `_total` for what only grows. What OTLP carries has the same
//! names without `_total`, and the unit beside.

/// What a metric's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from the server's start or its series'.
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    /// As Prometheus calls it.
    #[cfg(test)]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

impl Metric {
    /// Its name without `_total`.
    pub fn base(&self) -> &'static str {
        match self.kind {
            Kind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            Kind::Gauge | Kind::Histogram => self.name,
        }
    }

    /// Its unit, as UCUM has it.
    pub fn unit(&self) -> &'static str {
        let base = self.base();
        match () {
            () if base.ends_with("_seconds") => "s",
            () if base.ends_with("_bytes") => "By",
            () => "1",
        }
    }
}

macro_rules! metrics {
    ($($name:ident = $kind:ident $text:literal [$($label:literal),*] $help:literal;)*) => {
        $(pub const $name: Metric = Metric {
            name: $text,
            kind: Kind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)*

        /// All of them.
        #[cfg(test)]
        pub const ALL: &[Metric] = &[$($name),*];
    };
}

metrics! {
    BUILD_INFO = Gauge "weir_build_info" ["version", "cuda"] "1: the version of the server, and whether GPUs are built in";

    // Calls, by tenant and function.
    CALLS = Counter "weir_calls_total" ["tenant", "function", "outcome"] "Calls that have ended, by how";
    CALL_SECONDS = Histogram "weir_call_seconds" ["tenant", "function"] "Time of a call, from its request's head to its answer's";
    CALL_PROBLEMS = Counter "weir_call_problems_total" ["tenant", "function", "code"] "Calls whose answer was a problem, by its code";
    CALLS_IN_FLIGHT = Gauge "weir_calls_in_flight" ["tenant", "function"] "Calls that have come and not ended";
    COLD_STARTS = Counter "weir_cold_starts_total" ["tenant", "function"] "Revisions that woke from zero";
    FOLDED_FUNCTIONS = Gauge "weir_folded_functions" [] "Deployed functions that are counted under `_other`";
    FOLDED_TENANTS = Gauge "weir_folded_tenants" [] "Tenants that are counted under `_other`";

    // The server as a whole.
    PROBLEMS = Counter "weir_problems_total" ["code"] "Answers that were a problem, to calls and to all else, by code";
    LIMITS = Counter "weir_limits_total" ["limit"] "Limits that were met, by setting";
    EGRESS_REFUSED = Counter "weir_egress_refused_total" [] "Outgoing requests refused";
    CONNECTIONS = Gauge "weir_connections" [] "Connections of clients";
    FUNCTIONS = Gauge "weir_functions" [] "Functions that are deployed";
    MODELS = Gauge "weir_models" [] "Models that are kept";

    // Waking, and sandboxes.
    COLD_START_SECONDS = Histogram "weir_cold_start_seconds" ["phase"] "Time of a cold start's phases: code is mapped, a sandbox made, a graph loaded";
    AWAKE_REVISIONS = Gauge "weir_awake_revisions" [] "Revisions with their code mapped";
    SANDBOXES = Gauge "weir_sandboxes" [] "Sandboxes that exist";
    IDLE_SANDBOXES = Gauge "weir_idle_sandboxes" [] "Sandboxes that wait for a call";
    MAX_SANDBOXES = Gauge "weir_max_sandboxes" [] "Sandboxes that there may be";
    SANDBOXES_STARTED = Counter "weir_sandboxes_started_total" [] "Sandboxes made";
    MEMORY_BYTES = Gauge "weir_memory_bytes" [] "Memory of all sandboxes: their own and what the host keeps for them";
    MAX_MEMORY_BYTES = Gauge "weir_max_memory_bytes" [] "Memory that all sandboxes may have";
    HOST_BYTES = Gauge "weir_host_bytes" [] "Bytes that the host keeps for sandboxes";

    // Inference, by device.
    INFERENCES = Counter "weir_inferences_total" ["outcome"] "Inferences that have ended, well or not";
    QUEUE_SECONDS = Histogram "weir_inference_queue_seconds" ["device"] "Time that an inference waited for a lane";
    DEVICE_SECONDS = Histogram "weir_inference_device_seconds" ["device"] "Time that an inference held a lane: its part of its job's";
    OPERATORS = Counter "weir_operators_total" [] "Operators run";
    BATCHES = Counter "weir_batches_total" [] "Jobs of more than one request";
    BATCHED_REQUESTS = Counter "weir_batched_requests_total" [] "Requests that rode in those";
    LANES = Gauge "weir_lanes" ["device"] "Lanes of a device";
    BUSY_LANES = Gauge "weir_busy_lanes" ["device"] "Lanes in use";
    QUEUED_JOBS = Gauge "weir_queued_jobs" ["device"] "Requests that wait for a lane";
    SUSPENDED_JOBS = Gauge "weir_suspended_jobs" ["device"] "Jobs that have begun and made way";
    SUSPENSIONS = Counter "weir_suspensions_total" ["device"] "Times that a job made way";
    DEVICE_FAILED = Gauge "weir_device_failed" ["device"] "1 if the device has stopped working";

    // Devices' memory.
    DEVICE_MEMORY_BYTES = Gauge "weir_device_memory_bytes" ["device"] "Memory that models and jobs have planned";
    MAX_DEVICE_MEMORY_BYTES = Gauge "weir_max_device_memory_bytes" ["device"] "Memory that models and jobs may plan";
    DRIVER_MEMORY_BYTES = Gauge "weir_driver_memory_bytes" ["device", "kind"] "A GPU's memory as its driver counts it";
    RESIDENT_GRAPHS = Gauge "weir_resident_graphs" ["device"] "Graphs in a device's memory";
    WAITING_GRAPHS = Gauge "weir_waiting_graphs" ["device"] "Graphs in host memory that a device may have at once";
    GRAPH_LOADS = Counter "weir_graph_loads_total" [] "Graphs loaded";
    FAILED_GRAPH_LOADS = Counter "weir_failed_graph_loads_total" [] "Graphs that could not be loaded";
    GRAPH_HITS = Counter "weir_graph_hits_total" [] "Graphs found in memory, or on their way";
    GRAPH_UNLOADS = Counter "weir_graph_unloads_total" [] "Graphs that left after their last use";
    GRAPH_EVICTIONS = Counter "weir_graph_evictions_total" [] "Idle graphs that made room for others";

    // Devices, by tenant.
    TENANT_DEVICE_SECONDS = Counter "weir_tenant_device_seconds_total" ["device", "tenant"] "Time that a tenant's jobs held lanes, as it was measured";
    TENANT_MEMORY_BYTES = Gauge "weir_tenant_device_memory_bytes" ["device", "tenant", "kind"] "Memory that a tenant's models and jobs have planned; what is no tenant's is `system`";
    MAX_TENANT_MEMORY_BYTES = Gauge "weir_max_tenant_device_memory_bytes" ["device", "tenant"] "Memory that they may plan, where it is less than the device's";
    TENANT_QUEUED_JOBS = Gauge "weir_tenant_queued_jobs" ["device", "tenant"] "Requests of a tenant that wait for a lane";

    // The store.
    STORE_UP = Gauge "weir_store_up" [] "1 while the data directory can be written";
    DATABASE_BYTES = Gauge "weir_database_bytes" [] "Bytes of the database's files";
    DISK_FREE_BYTES = Gauge "weir_disk_free_bytes" [] "Bytes that the data directory's file system has left";
    DISK_BYTES = Gauge "weir_disk_bytes" [] "Bytes of the data directory's file system";

    // The usage log.
    USAGE_RECORDS = Counter "weir_usage_records_total" [] "Usage records written";
    USAGE_RECORDS_LOST = Counter "weir_usage_records_lost_total" [] "Usage records that are nowhere, as the disk took none and no more could be held";
    USAGE_RECORDS_HELD = Gauge "weir_usage_records_held" [] "Usage records that are held in memory because the disk takes none";
    USAGE_LOG_SEGMENTS = Gauge "weir_usage_log_segments" [] "Files of the usage log";
    USAGE_LOG_BYTES = Gauge "weir_usage_log_bytes" [] "Bytes of the usage log";
    USAGE_LOG_MOST_BYTES = Gauge "weir_usage_log_most_bytes" [] "Bytes that the usage log may have";
    USAGE_SEGMENTS_EXPIRED = Counter "weir_usage_segments_expired_total" [] "Files of the usage log removed for their age";
    USAGE_SEGMENTS_DROPPED = Counter "weir_usage_segments_dropped_total" [] "Files of the usage log removed for want of room";
    USAGE_CLOCK_STEPS = Counter "weir_usage_clock_steps_total" [] "Times that the machine's clock was found to have been set back";
    USAGE_REFUSES = Gauge "weir_usage_refuses" [] "1 while calls are refused because their records could not be taken";
    BUDGETS_OVER = Gauge "weir_budgets_over" ["bound"] "Tenants over a soft bound of their budget and no hard one, and over a hard one";

    // The exporter, by signal.
    OTLP_QUEUED = Gauge "weir_otlp_queued" ["signal"] "Spans, points and log records that wait to be sent";
    OTLP_EXPORTED = Counter "weir_otlp_exported_total" ["signal"] "Spans, points and log records that a receiver has taken";
    OTLP_DROPPED = Counter "weir_otlp_dropped_total" ["signal"] "Those that found the queue full, or were in it at the end";
    OTLP_FAILED = Counter "weir_otlp_failed_total" ["signal"] "Those that a receiver refused, or could not be reached for";
    OTLP_REJECTED = Counter "weir_otlp_rejected_total" ["signal"] "Those that a receiver did not take of a batch that it took";
    OTLP_RETRIES = Counter "weir_otlp_retries_total" ["signal"] "Requests that were sent again";

    // The webhook of closed hours.
    WEBHOOK_TAKEN = Counter "weir_webhook_events_total" [] "Events of closed hours that the webhook has taken";
    WEBHOOK_FAILED = Counter "weir_webhook_failures_total" [] "Times that it has not taken one";
    WEBHOOK_BEHIND = Gauge "weir_webhook_behind_seconds" [] "Time that is over and of which it has not taken all, in whole hours";

    // The process, by the names that all have.
    PROCESS_CPU = Counter "process_cpu_seconds_total" [] "CPU time of the process, its guests' included";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" [] "Memory of the process that is resident";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" [] "Address space of the process, most of it reserved for sandboxes and not used";
    PROCESS_OPEN_FDS = Gauge "process_open_fds" [] "Open file descriptors";
    PROCESS_MAX_FDS = Gauge "process_max_fds" [] "File descriptors that may be open";
    PROCESS_THREADS = Gauge "process_threads" [] "Threads of the process";
    PROCESS_START = Gauge "process_start_time_seconds" [] "When the server started, in seconds since 1970";
    WORKERS = Gauge "weir_workers" [] "Threads that run calls";
    WORKERS_BUSY = Counter "weir_workers_busy_seconds_total" [] "Time that those threads were busy";
    TASKS = Gauge "weir_tasks" [] "Tasks of the server that live";
    QUEUED_TASKS = Gauge "weir_queued_tasks" [] "Tasks that wait for any thread";
}
