-- The paywall's book, in words of SQLite, as in history/internal/schema/schema.sql: money is micro-dollars (usd) and decimal text (amount, 256 bits), times
-- are Unix microseconds, UTC. Rows are numbered (seq) by the program, in the order in which they are written.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- What was sold: a payment that somebody showed our paywall buys one run, whatever process it is shown to.
CREATE TABLE sales (
    seq            INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    unique_key     TEXT    NOT NULL UNIQUE,   -- what makes the payment that payment: its nonce, or the hash of its message
    state          TEXT    NOT NULL,          -- running | settling | settled | unknown | failed | verified
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    resource       TEXT    NOT NULL,
    call           BLOB    NOT NULL,          -- hash of what it was shown for
    identifier     TEXT    NOT NULL,          -- the buyer's own, of the extension payment-identifier; "" without
    network        TEXT    NOT NULL,
    scheme         TEXT    NOT NULL,
    asset          TEXT    NOT NULL,
    symbol         TEXT    NOT NULL,
    amount         TEXT    NOT NULL,
    usd            INTEGER NOT NULL,
    pay_to         TEXT    NOT NULL,
    payer          TEXT    NOT NULL,
    requirement    TEXT    NOT NULL,
    payload        BLOB    NOT NULL,          -- as it was shown
    transaction_id TEXT    NOT NULL DEFAULT '',
    facilitator    TEXT    NOT NULL DEFAULT '',
    receipt        TEXT,
    note           TEXT    NOT NULL DEFAULT '',
    answer         BLOB                       -- for a buyer that shows the same payment again, with its identifier
);
CREATE INDEX sales_by_time  ON sales (created_at);
CREATE INDEX sales_bought   ON sales (call, payer);
CREATE INDEX sales_named    ON sales (identifier, payer) WHERE identifier <> '';
CREATE INDEX sales_answered ON sales (updated_at) WHERE answer IS NOT NULL;

-- Channels of batch-settlement that our paywall is paid out of: what it charged, and the newest voucher that it gave something for, by
-- which that is claimed.
CREATE TABLE sold_channels (
    network      TEXT    NOT NULL,
    channel      TEXT    NOT NULL,          -- its id on the chain
    config       TEXT    NOT NULL,          -- what the id is a hash of
    charged      TEXT    NOT NULL,          -- in all, from its first day on
    ceiling      TEXT    NOT NULL,          -- of the newest voucher
    signature    TEXT    NOT NULL,          -- of that; "" before anything was given
    balance      TEXT    NOT NULL,          -- this and the next three as the facilitator said last
    claimed      TEXT    NOT NULL,
    refunds      INTEGER NOT NULL,          -- the nonce of the next refund
    withdraws_at INTEGER NOT NULL,          -- when its payer began to take the money back, Unix seconds; 0: they did not
    holder       TEXT    NOT NULL,          -- the sale or refund that is under way; "" without
    held_until   INTEGER NOT NULL,          -- its process is taken for dead then
    owed_since   INTEGER NOT NULL,          -- the oldest charge that was not paid out; 0: all was
    PRIMARY KEY (network, channel)
);
CREATE INDEX sold_channels_owed ON sold_channels (owed_since) WHERE owed_since > 0;
