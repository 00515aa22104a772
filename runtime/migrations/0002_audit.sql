-- The audit log. What was said is `entry`, as text; each hash is over the hash before it and that text. The columns beside it
-- are there to be searched by, and say what the entry says.
CREATE TABLE audit (
    number BIGINT NOT NULL PRIMARY KEY,
    tenant TEXT,
    key_id TEXT,
    entry TEXT NOT NULL,
    hash TEXT NOT NULL
);

CREATE INDEX audit_by_tenant ON audit (tenant, number);
CREATE INDEX audit_by_key ON audit (key_id, number);
