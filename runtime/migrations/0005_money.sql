-- What usage costs and what need not be paid, as the tables of definitions are: rate cards, which are the operator's; how
-- tenants are billed; and their credits.
CREATE TABLE rate_cards (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    record TEXT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE billing (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    record TEXT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE credits (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    record TEXT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);
