CREATE TABLE sales (
    seq            INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    trace          TEXT    NOT NULL UNIQUE,
    state          TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    resource       TEXT    NOT NULL,
    call           BLOB    NOT NULL,
    identifier     TEXT    NOT NULL,
    network        TEXT    NOT NULL,
    scheme         TEXT    NOT NULL,
    asset          TEXT    NOT NULL,
    symbol         TEXT    NOT NULL,
    amount         TEXT    NOT NULL,
    usd            INTEGER NOT NULL,
    pay_to         TEXT    NOT NULL,
    payer          TEXT    NOT NULL,
    requirement    TEXT    NOT NULL,
    payload        BLOB    NOT NULL,
    transaction_id TEXT    NOT NULL DEFAULT '',
    facilitator    TEXT    NOT NULL DEFAULT '',
    receipt        TEXT,
    note           TEXT    NOT NULL DEFAULT '',
    answer         BLOB
);
CREATE INDEX sales_by_time  ON sales (created_at);
CREATE INDEX sales_answered ON sales (updated_at) WHERE answer IS NOT NULL;
