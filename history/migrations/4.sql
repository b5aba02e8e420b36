CREATE TABLE approvals (
    id         TEXT PRIMARY KEY,
    quote      BLOB    NOT NULL,
    state      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    declined   INTEGER NOT NULL DEFAULT 0,
    host       TEXT    NOT NULL,
    method     TEXT    NOT NULL,
    url        TEXT    NOT NULL,
    network    TEXT    NOT NULL,
    asset      TEXT    NOT NULL,
    symbol     TEXT    NOT NULL,
    amount     TEXT    NOT NULL,
    usd        INTEGER NOT NULL,
    pay_to     TEXT    NOT NULL,
    why        TEXT    NOT NULL,
    payment    TEXT    NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE UNIQUE INDEX approvals_open ON approvals (quote) WHERE state IN ('pending', 'approved', 'denied');
CREATE INDEX approvals_by_payment ON approvals (payment);
CREATE TABLE freezes (
    network TEXT    NOT NULL,
    account TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    by      TEXT    NOT NULL,
    why     TEXT    NOT NULL,
    PRIMARY KEY (network, account)
) WITHOUT ROWID;
