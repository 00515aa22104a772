-- What was used, by hour: sums of usage records. Texts that a record does not have are empty; what is of a call as a whole
-- has neither device nor model, and what is of a device has no quantities of calls.
CREATE TABLE usage_hours (
    hour BIGINT NOT NULL,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    function TEXT NOT NULL,
    revision BIGINT NOT NULL,
    key_id TEXT NOT NULL,
    class TEXT NOT NULL,
    outcome TEXT NOT NULL,
    device TEXT NOT NULL,
    model TEXT NOT NULL,
    calls BIGINT NOT NULL,
    wall_ns BIGINT NOT NULL,
    held_ns BIGINT NOT NULL,
    startup_ns BIGINT NOT NULL,
    queue_ns BIGINT NOT NULL,
    inference_ns BIGINT NOT NULL,
    guest_ns BIGINT NOT NULL,
    guest_cpu_ns BIGINT NOT NULL,
    host_memory_byte_ms BIGINT NOT NULL,
    request_bytes BIGINT NOT NULL,
    response_bytes BIGINT NOT NULL,
    egress_bytes BIGINT NOT NULL,
    cold_starts BIGINT NOT NULL,
    cold_code_ns BIGINT NOT NULL,
    cold_sandbox_ns BIGINT NOT NULL,
    inferences BIGINT NOT NULL,
    failed_inferences BIGINT NOT NULL,
    device_ns BIGINT NOT NULL,
    lane_queue_ns BIGINT NOT NULL,
    loads BIGINT NOT NULL,
    load_ns BIGINT NOT NULL,
    operators BIGINT NOT NULL,
    peak_bytes BIGINT NOT NULL,
    memory_byte_ms BIGINT NOT NULL,
    reserved_byte_ms BIGINT NOT NULL,
    rows BIGINT NOT NULL,
    batch_rows BIGINT NOT NULL,
    padding_rows BIGINT NOT NULL,
    PRIMARY KEY (tenant, hour, kind, function, revision, key_id, class, outcome, device, model)
);

CREATE INDEX usage_by_hour ON usage_hours (hour);

-- The place of the log of records up to which the sums go. They change together. One row.
CREATE TABLE usage_position (
    id BIGINT NOT NULL PRIMARY KEY,
    segment BIGINT NOT NULL,
    place BIGINT NOT NULL
);
