-- One table per kind of definition, all alike: whose it is, what it is called, the definition as JSON, and how often it
-- has been written.
CREATE TABLE functions (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    record TEXT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE models (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    record TEXT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE tenants (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    record TEXT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE keys (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    record TEXT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- One row, written to learn whether the database can be.
CREATE TABLE probe (
    id BIGINT NOT NULL PRIMARY KEY,
    writes BIGINT NOT NULL
);
