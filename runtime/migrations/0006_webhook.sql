-- What the webhook of usage has been told: all hours before this one, since 1970. `source` says which server's events are. One row.
CREATE TABLE webhook (
    id BIGINT NOT NULL PRIMARY KEY,
    source TEXT NOT NULL,
    hour BIGINT NOT NULL
);
