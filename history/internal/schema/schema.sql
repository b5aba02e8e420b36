-- The ledger, in words of SQLite that PostgreSQL's dialect replaces (sqldb/postgres.go): INTEGER has 64 bits, BLOB is bytes. Money is
-- micro-dollars (usd) and decimal text (amount, 256 bits); times are Unix microseconds, UTC; yes and no are 1 and 0. Evidence is JSON.
-- Rows are numbered (seq) by the program, in the order in which they are written.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE sessions (
    id         TEXT PRIMARY KEY,
    started_at INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,            -- its last payment
    cap        INTEGER,                     -- the delegation found at its start; NULL: none
    ended      INTEGER NOT NULL DEFAULT 0,
    seal       BLOB                         -- the owner began it; NULL: a payment did
);

CREATE TABLE payments (
    seq             INTEGER PRIMARY KEY,
    id              TEXT NOT NULL UNIQUE,
    session         TEXT NOT NULL,
    state           TEXT NOT NULL,          -- reserved | submitted | settled | failed | unknown
    proof           TEXT NOT NULL DEFAULT '',
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    fingerprint     BLOB NOT NULL,          -- of method, URL, headers that matter, body
    idempotency_key TEXT,
    method          TEXT NOT NULL,
    url             TEXT NOT NULL,
    target          TEXT NOT NULL,          -- where the URL led: who asked for payment, and is paid
    host            TEXT NOT NULL,
    network         TEXT NOT NULL,
    scheme          TEXT NOT NULL,
    dialect         TEXT NOT NULL,
    asset           TEXT NOT NULL,
    symbol          TEXT NOT NULL,
    amount          TEXT NOT NULL,
    usd             INTEGER NOT NULL,
    pay_to          TEXT NOT NULL,
    source          TEXT NOT NULL,          -- whose money: EVM address or token account
    requirement     TEXT NOT NULL,          -- the option as a facilitator is sent it
    payload         TEXT,                   -- the signed bytes, on disk before they leave; NULL: not signed yet
    evidence        TEXT,                   -- what the chain is asked by; NULL: likewise
    unique_key      BLOB UNIQUE,            -- hash of nonce or our own signature: one per signed payment
    transaction_id  TEXT NOT NULL DEFAULT '',
    facilitator     TEXT NOT NULL DEFAULT '',
    receipt         TEXT,                   -- the claim as it came
    chain_proof     TEXT,                   -- the chain's answer
    note            TEXT NOT NULL DEFAULT '',
    false_receipt   INTEGER NOT NULL DEFAULT 0,
    lease_owner     TEXT NOT NULL DEFAULT '', -- the process that works on it now
    waiter          TEXT NOT NULL DEFAULT '', -- the process whose client waits for the answer
    delivered       INTEGER NOT NULL DEFAULT 0,
    charged         TEXT NOT NULL DEFAULT '', -- what the chain showed to have moved, where that was less than amount; '': all of it
    returned        INTEGER NOT NULL DEFAULT 0, -- of usd, what was not charged: the sums count the rest
    agent           TEXT NOT NULL DEFAULT ''  -- whose it is, of those that share the wallet; '': of a caller without a name
);
CREATE INDEX payments_by_time         ON payments (created_at);
CREATE INDEX payments_by_transaction  ON payments (transaction_id) WHERE transaction_id <> '';
CREATE INDEX payments_resumable        ON payments (fingerprint, seq)
    WHERE state IN ('reserved', 'submitted', 'unknown') OR state = 'settled' AND delivered = 0;
CREATE INDEX payments_unfinished      ON payments (seq) WHERE state IN ('reserved', 'submitted', 'unknown');
CREATE INDEX payments_held            ON payments (source, asset) WHERE state IN ('reserved', 'submitted', 'unknown');
CREATE INDEX payments_claimed         ON payments (seq) WHERE state = 'settled' AND proof = 'claimed';
CREATE INDEX payments_settled         ON payments (updated_at) WHERE state = 'settled';
CREATE INDEX payments_reserved         ON payments (seq) WHERE state = 'reserved';

CREATE UNIQUE INDEX payments_by_key  ON payments (idempotency_key, agent) WHERE idempotency_key IS NOT NULL AND state <> 'failed';

-- What is spent and held, by UTC day: of all payments, of a host, of an agent; and of a session in all (totals.go). Budgets are decided
-- by these sums; `history verify` adds them up again.
CREATE TABLE totals (
    scope TEXT    NOT NULL,                 -- all | session | host | agent
    key   TEXT    NOT NULL,
    day   INTEGER NOT NULL,                 -- days since 1970; of a session 0
    spent INTEGER NOT NULL,                 -- settled, micro-dollars
    held  INTEGER NOT NULL,                 -- reserved, submitted, unknown
    PRIMARY KEY (scope, day, key)
);

-- What was bought: of each payment one row for ever, which says what its content was; the audit chain says the same. Apart from payments,
-- so that sums over payments stay narrow; the bytes are apart from both, so that nothing but reading them reads them (package content).
CREATE TABLE contents (
    payment     INTEGER PRIMARY KEY,        -- its seq
    http_status INTEGER NOT NULL,
    type        TEXT NOT NULL,
    headers     TEXT NOT NULL,              -- of the answer's headers those that its reader needs, a JSON object or ''
    truncated   INTEGER NOT NULL,
    size        INTEGER NOT NULL,           -- bytes
    sha256      BLOB NOT NULL,              -- of them
    spare       INTEGER NOT NULL,           -- nobody waits for it: delivered, or of no use
    removed     TEXT NOT NULL DEFAULT ''    -- why the bytes are gone: quota | pruned
);
CREATE INDEX contents_spare ON contents (payment) WHERE removed = '' AND spare = 1;

CREATE TABLE bodies (
    payment INTEGER PRIMARY KEY,            -- its seq
    body    BLOB NOT NULL
);

-- How many bytes of content are stored, and how many of them nobody got yet.
CREATE TABLE content_use (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    stored INTEGER NOT NULL,
    owed   INTEGER NOT NULL
);
INSERT INTO content_use VALUES (1, 0, 0);

-- Every change of state, chained: hash = SHA-256(previous hash ‖ the row).
CREATE TABLE audit (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    payment INTEGER NOT NULL,               -- its seq; 0: none
    event   TEXT NOT NULL,
    detail  TEXT NOT NULL,
    hash    BLOB NOT NULL,
    seal    BLOB                            -- MAC of the hash by who held the key (history/sealed.go); NULL: nobody did
);
CREATE INDEX audit_by_payment ON audit (payment, seq);
CREATE INDEX audit_sealed ON audit (seq) WHERE seal IS NOT NULL;
CREATE INDEX audit_of_rules ON audit (seq) WHERE event = 'sealed';

-- The sums that the newest sealed row of the audit chain names by their digest.
CREATE TABLE sealed_sums (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    sums TEXT NOT NULL
);

-- What was ever signed, as far as later decisions need it, and the digests over it (package memory).
CREATE TABLE memory (
    bucket INTEGER NOT NULL,
    key    BLOB    NOT NULL,
    value  BLOB    NOT NULL,
    PRIMARY KEY (bucket, key)
);
CREATE TABLE memory_nodes (
    place   INTEGER PRIMARY KEY,
    digests BLOB NOT NULL
);

-- The largest delegation ever seen on a token account: the chain only has what is left of it.
CREATE TABLE delegations (
    network TEXT NOT NULL,
    account TEXT NOT NULL,
    largest TEXT NOT NULL,
    PRIMARY KEY (network, account)
);

-- config.toml as the owner sealed it, each time; the newest counts.
CREATE TABLE rules (
    version INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    config  BLOB    NOT NULL,
    seal    BLOB    NOT NULL
);

-- What a person was asked, is asked, approved or denied: each bound to the hash of one exact quote.
CREATE TABLE approvals (
    id         TEXT PRIMARY KEY,
    quote      BLOB    NOT NULL,
    state      TEXT    NOT NULL,            -- pending | approved | denied | used | expired
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    declined   INTEGER NOT NULL DEFAULT 0,  -- how often a client's person said no
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
    agent      TEXT    NOT NULL,            -- who asks, and alone may use it; '': a caller without a name
    payment    TEXT    NOT NULL DEFAULT '', -- that used it up
    since      INTEGER NOT NULL DEFAULT 0,  -- the audit chain's last row when the owner approved
    seal       BLOB                         -- over the owner's approval; NULL: there is none, or a person at a client approved
);
CREATE UNIQUE INDEX approvals_open ON approvals (quote) WHERE state IN ('pending', 'approved', 'denied');
CREATE INDEX approvals_by_payment ON approvals (payment);

-- What may not be paid from: everything (both empty), or one account. Rows stay; one is over when a lift has come up to it.
CREATE TABLE freezes (
    seq     INTEGER PRIMARY KEY,
    network TEXT    NOT NULL,
    account TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    by      TEXT    NOT NULL,               -- owner | agent | breaker
    why     TEXT    NOT NULL
);

-- The owner lifted all freezes up to this one.
CREATE TABLE lifts (
    upto INTEGER PRIMARY KEY,
    at   INTEGER NOT NULL,
    seal BLOB    NOT NULL
);

-- What the owner is told of, written in the transaction that causes it; one row for one cause. It is no evidence: the chain has nothing of it.
CREATE TABLE alerts (
    id       TEXT   PRIMARY KEY,
    kind     TEXT   NOT NULL,               -- approval | freeze | budget | payment | ledger | funds | epoch
    subject  TEXT   NOT NULL,               -- what it is about: an approval's or a payment's id, a budget, an account
    win      TEXT   NOT NULL,               -- a budget's window, a freeze's seq, or a day; '': there is but one of the subject
    at       INTEGER NOT NULL,
    detail   TEXT   NOT NULL,               -- JSON
    state    TEXT   NOT NULL,               -- waiting | told | over (it was settled before it was told) | failed (given up)
    told_at  INTEGER,                        -- NULL: not yet
    told_as  TEXT   NOT NULL DEFAULT '',    -- the notice's id: several are told as one
    attempts INTEGER NOT NULL,               -- that failed
    next_at  INTEGER NOT NULL,               -- not told before; 0: at once
    UNIQUE (kind, subject, win)
);
CREATE INDEX alerts_waiting ON alerts (next_at) WHERE state = 'waiting';
CREATE INDEX alerts_by_time ON alerts (at, id);

-- Who does what one process at a time does for all of them, and until when. A fence only grows: whoever comes late has an older one.
CREATE TABLE turns (
    name   TEXT   PRIMARY KEY,
    holder TEXT   NOT NULL,
    until  INTEGER NOT NULL,
    fence  INTEGER NOT NULL
);

-- Payment channels: what was signed in each. Vouchers only grow, within an epoch of the channel.
CREATE TABLE channels (
    service    TEXT    NOT NULL,            -- who is paid: its DID
    key        TEXT    NOT NULL,            -- who signs: DID and fragment
    server     TEXT    NOT NULL,            -- where it was met
    network    TEXT    NOT NULL,
    source     TEXT    NOT NULL,            -- whose hub is drawn on
    channel    TEXT    NOT NULL,            -- its id on the chain
    epoch      TEXT    NOT NULL,            -- decimal, as nonce: 64 bits
    nonce      TEXT    NOT NULL,            -- of the last voucher
    amount     TEXT    NOT NULL,            -- signed for in all
    claimed    TEXT    NOT NULL,            -- taken by the payee of that, as it was last seen on the chain
    signed     TEXT,                        -- the last voucher, to be sent with the next call
    known      INTEGER NOT NULL,            -- the service has it
    call       TEXT,                        -- the call under way: its answer may bring a cost
    refused    TEXT,                        -- the last proposal that was refused, and why
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (service, key)
);
