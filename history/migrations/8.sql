CREATE TABLE channels (
    service    TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    server     TEXT    NOT NULL,
    network    TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    channel    TEXT    NOT NULL,
    epoch      TEXT    NOT NULL,
    nonce      TEXT    NOT NULL,
    amount     TEXT    NOT NULL,
    claimed    TEXT    NOT NULL,
    signed     TEXT,
    known      INTEGER NOT NULL,
    call       TEXT,
    refused    TEXT,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (service, key)
) WITHOUT ROWID;
