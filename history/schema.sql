-- The ledger. Money is micro-dollars (usd) and decimal text (amount, 256 bits); times are Unix microseconds, UTC.
-- A budget is decided over payments. The sums it needs are kept by triggers in the very transaction that changes a payment, so
-- they cannot drift from it; `history verify` adds them up again.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE sessions (
    id         TEXT PRIMARY KEY,
    started_at INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,            -- its last payment
    cap        INTEGER,                     -- the delegation found at its start; NULL: none
    ended      INTEGER NOT NULL DEFAULT 0,
    seal       BLOB                         -- the owner began it; NULL: a payment did
) WITHOUT ROWID;

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
    record          BLOB NOT NULL,          -- packed (pack.go): the option as a facilitator is sent it, the
                                            -- signed bytes (on disk before they leave), what the chain is asked by
    unique_key      BLOB UNIQUE,            -- hash of nonce or our own signature: one per signed payment
    transaction_id  TEXT NOT NULL DEFAULT '',
    facilitator     TEXT NOT NULL DEFAULT '',
    receipt         BLOB,                   -- packed
    chain_proof     BLOB,                   -- packed: the chain's answer
    note            TEXT NOT NULL DEFAULT '',
    false_receipt   INTEGER NOT NULL DEFAULT 0,
    lease_owner     TEXT NOT NULL DEFAULT '', -- the process that works on it now
    waiter          TEXT NOT NULL DEFAULT '', -- the process whose client waits for the answer
    delivered       INTEGER NOT NULL DEFAULT 0,
    prefix_length   INTEGER NOT NULL,         -- of scheme, host and often the first word of the path: what sums are kept by (search.go)
    charged         TEXT NOT NULL DEFAULT '', -- what the chain showed to have moved, where that was less than amount; '': all of it
    returned        INTEGER NOT NULL DEFAULT 0, -- of usd, what was not charged: the sums count the rest
    agent           TEXT NOT NULL DEFAULT ''  -- whose it is, of those that share the wallet; '': of a caller without a name
);
CREATE INDEX payments_by_time         ON payments (created_at);
CREATE INDEX payments_by_transaction  ON payments (substr(transaction_id, 1, 20)) WHERE transaction_id <> '';
CREATE INDEX payments_resumable        ON payments (fingerprint, seq)
    WHERE state IN ('reserved', 'submitted', 'unknown') OR state = 'settled' AND delivered = 0;
CREATE INDEX payments_unfinished      ON payments (seq) WHERE state IN ('reserved', 'submitted', 'unknown');
CREATE INDEX payments_held            ON payments (source, asset) WHERE state IN ('reserved', 'submitted', 'unknown');
CREATE INDEX payments_claimed         ON payments (seq) WHERE state = 'settled' AND proof = 'claimed';
CREATE INDEX payments_settled         ON payments (updated_at) WHERE state = 'settled';
CREATE INDEX payments_reserved         ON payments (seq) WHERE state = 'reserved';

CREATE UNIQUE INDEX payments_by_key  ON payments (idempotency_key, agent) WHERE idempotency_key IS NOT NULL AND state <> 'failed';

-- What x402_history looks through (search.go says why): of each payment only what it is found by and adds to a sum.
CREATE TABLE payment_search (
    seq           INTEGER PRIMARY KEY,
    url           TEXT    NOT NULL,         -- in small letters
    usd           INTEGER NOT NULL,         -- what it adds to a sum: payments.usd without returned, nothing once it failed
    state         TEXT    NOT NULL,
    symbol        TEXT    NOT NULL,
    prefix_length INTEGER NOT NULL,
    agent         TEXT    NOT NULL
);
CREATE INDEX payment_search_agent ON payment_search (agent, seq) WHERE agent <> '';
CREATE INDEX payment_search_failed ON payment_search (seq, url) WHERE state = 'failed';
CREATE INDEX payment_search_long ON payment_search (seq) WHERE length(url) > 512;

CREATE TRIGGER payment_search_insert AFTER INSERT ON payments BEGIN
    INSERT INTO payment_search VALUES (NEW.seq, lower(NEW.url), (NEW.state <> 'failed') * (NEW.usd - NEW.returned), NEW.state, NEW.symbol, NEW.prefix_length, NEW.agent);
END;

CREATE TRIGGER payment_search_update AFTER UPDATE OF state, returned ON payments
WHEN OLD.state <> NEW.state OR OLD.returned <> NEW.returned BEGIN
    UPDATE payment_search SET state = NEW.state, usd = (NEW.state <> 'failed') * (NEW.usd - NEW.returned) WHERE seq = NEW.seq;
END;

-- Sums per UTC day: of all payments, of a session, of a host, of an agent, of a network, of an asset's symbol; for x402_history also of a
-- symbol in an hour, of an agent's symbol, and of a symbol under a URL prefix, on a day and ever. The budgets read the first four, the
-- dashboard those by network, agent and hour.
CREATE TABLE totals (
    scope TEXT    NOT NULL,                 -- all | session | host | agent | network | symbol | hour | agent symbol | prefix | prefix ever
    key   TEXT    NOT NULL,                 -- of prefix: symbol, newline, prefix; of agent symbol: agent, newline, symbol
    day   INTEGER NOT NULL,                 -- days since 1970; of hour: hours since 1970; of prefix ever: 0
    spent INTEGER NOT NULL,                 -- settled, micro-dollars
    held  INTEGER NOT NULL,                 -- reserved, submitted, unknown
    PRIMARY KEY (scope, key, day)
) WITHOUT ROWID;

CREATE TRIGGER totals_insert AFTER INSERT ON payments BEGIN
    INSERT INTO totals (scope, key, day, spent, held)
    SELECT column1, column2, column3, (NEW.state = 'settled') * (NEW.usd - NEW.returned), (NEW.state NOT IN ('settled', 'failed')) * (NEW.usd - NEW.returned) FROM (VALUES
        ('all', '', NEW.created_at / 86400000000),
        ('session', NEW.session, NEW.created_at / 86400000000),
        ('host', NEW.host, NEW.created_at / 86400000000),
        ('agent', NEW.agent, NEW.created_at / 86400000000),
        ('network', NEW.network, NEW.created_at / 86400000000),
        ('symbol', NEW.symbol, NEW.created_at / 86400000000),
        ('hour', NEW.symbol, NEW.created_at / 3600000000),
        ('agent symbol', NEW.agent || char(10) || NEW.symbol, NEW.created_at / 86400000000),
        ('prefix', NEW.symbol || char(10) || substr(NEW.url, 1, NEW.prefix_length), NEW.created_at / 86400000000),
        ('prefix ever', NEW.symbol || char(10) || substr(NEW.url, 1, NEW.prefix_length), 0))
    WHERE NEW.agent <> '' OR column1 NOT IN ('agent', 'agent symbol')
    ON CONFLICT (scope, key, day) DO UPDATE SET spent = spent + excluded.spent, held = held + excluded.held;
END;

CREATE TRIGGER totals_update AFTER UPDATE OF state, returned ON payments
WHEN OLD.returned <> NEW.returned
    OR OLD.state <> NEW.state AND (OLD.state IN ('settled', 'failed') OR NEW.state IN ('settled', 'failed')) BEGIN
    UPDATE totals SET
        spent = spent + (NEW.state = 'settled') * (NEW.usd - NEW.returned) - (OLD.state = 'settled') * (OLD.usd - OLD.returned),
        held  = held + (NEW.state NOT IN ('settled', 'failed')) * (NEW.usd - NEW.returned)
            - (OLD.state NOT IN ('settled', 'failed')) * (OLD.usd - OLD.returned)
    WHERE (scope, key, day) IN (VALUES
        ('all', '', NEW.created_at / 86400000000),
        ('session', NEW.session, NEW.created_at / 86400000000),
        ('host', NEW.host, NEW.created_at / 86400000000),
        ('agent', NEW.agent, NEW.created_at / 86400000000),
        ('network', NEW.network, NEW.created_at / 86400000000),
        ('symbol', NEW.symbol, NEW.created_at / 86400000000),
        ('hour', NEW.symbol, NEW.created_at / 3600000000),
        ('agent symbol', NEW.agent || char(10) || NEW.symbol, NEW.created_at / 86400000000),
        ('prefix', NEW.symbol || char(10) || substr(NEW.url, 1, NEW.prefix_length), NEW.created_at / 86400000000),
        ('prefix ever', NEW.symbol || char(10) || substr(NEW.url, 1, NEW.prefix_length), 0));
END;

-- The URLs by any three characters in a row, and what of them is behind their prefixes. Payments come in by the block of 256, because one
-- at a time costs much more: those behind the last multiple of 256 are not in it yet. URLs of more than 512 characters never are
-- (payment_search_long): a block of the longest would take seconds. A payment is never deleted, nor its URL changed.
CREATE VIRTUAL TABLE url_fts USING fts5 (text, tokenize = 'trigram', detail = 'none', content = '', columnsize = 0);
CREATE VIRTUAL TABLE url_suffix_fts USING fts5 (text, tokenize = 'trigram', detail = 'none', content = '', columnsize = 0);

CREATE TRIGGER url_fts_insert AFTER INSERT ON payments WHEN NEW.seq % 256 = 0 BEGIN
    INSERT INTO url_fts (rowid, text) SELECT seq, url FROM payments
        WHERE seq > NEW.seq - 256 AND seq <= NEW.seq AND length(url) <= 512;
    INSERT INTO url_suffix_fts (rowid, text) SELECT seq, substr(url, prefix_length + 1) FROM payments
        WHERE seq > NEW.seq - 256 AND seq <= NEW.seq AND length(url) <= 512;
END;

-- What was bought: of each payment one row for ever, which says what its content was; the audit chain says the same. Apart from payments,
-- so that sums over payments stay narrow; the bytes are apart from both, so that nothing but reading them reads them (content.go).
CREATE TABLE contents (
    payment     INTEGER PRIMARY KEY,        -- its seq
    http_status INTEGER NOT NULL,
    type        TEXT NOT NULL,
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

CREATE TRIGGER content_use_insert AFTER INSERT ON contents BEGIN
    UPDATE content_use SET stored = stored + (NEW.removed = '') * NEW.size, owed = owed + (NEW.removed = '' AND NEW.spare = 0) * NEW.size;
END;

CREATE TRIGGER content_use_update AFTER UPDATE OF size, spare, removed ON contents BEGIN
    UPDATE content_use SET
        stored = stored + (NEW.removed = '') * NEW.size - (OLD.removed = '') * OLD.size,
        owed   = owed + (NEW.removed = '' AND NEW.spare = 0) * NEW.size - (OLD.removed = '' AND OLD.spare = 0) * OLD.size;
END;

CREATE TRIGGER contents_delivered AFTER UPDATE OF state, delivered ON payments
WHEN (NEW.delivered = 1 OR NEW.state = 'failed') <> (OLD.delivered = 1 OR OLD.state = 'failed') BEGIN
    UPDATE contents SET spare = (NEW.delivered = 1 OR NEW.state = 'failed' OR http_status NOT BETWEEN 200 AND 299) WHERE payment = NEW.seq;
END;

-- Every change of state, chained: hash = SHA-256(previous hash ‖ the row).
CREATE TABLE audit (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    payment INTEGER NOT NULL,               -- its seq; 0: none
    event   TEXT NOT NULL,
    detail  TEXT NOT NULL,
    hash    BLOB NOT NULL,
    seal    BLOB                            -- MAC of the hash by who held the key (sealed.go); NULL: nobody did
);
CREATE INDEX audit_by_payment ON audit (payment);
CREATE INDEX audit_sealed ON audit (seq) WHERE seal IS NOT NULL;

-- The sums that the newest sealed row of the audit chain names by their digest.
CREATE TABLE sealed_sums (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    sums TEXT NOT NULL
);

-- What was ever signed, as far as later decisions need it, and the digests over it (memory.go).
CREATE TABLE memory (
    bucket INTEGER NOT NULL,
    key    BLOB    NOT NULL,
    value  BLOB    NOT NULL,
    PRIMARY KEY (bucket, key)
) WITHOUT ROWID;
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
) WITHOUT ROWID;

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
) WITHOUT ROWID;
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
-- This and the next table are in words that PostgreSQL knows too.
CREATE TABLE alerts (
    id       TEXT   PRIMARY KEY,
    kind     TEXT   NOT NULL,               -- approval | freeze | budget | payment | ledger | funds | epoch
    subject  TEXT   NOT NULL,               -- what it is about: an approval's or a payment's id, a budget, an account
    win      TEXT   NOT NULL,               -- a budget's window, a freeze's seq, or a day; '': there is but one of the subject
    at       BIGINT NOT NULL,
    detail   TEXT   NOT NULL,               -- JSON
    state    TEXT   NOT NULL,               -- waiting | told | over (it was settled before it was told) | failed (given up)
    told_at  BIGINT,                        -- NULL: not yet
    told_as  TEXT   NOT NULL DEFAULT '',    -- the notice's id: several are told as one
    attempts BIGINT NOT NULL,               -- that failed
    next_at  BIGINT NOT NULL,               -- not told before; 0: at once
    UNIQUE (kind, subject, win)
);
CREATE INDEX alerts_waiting ON alerts (next_at) WHERE state = 'waiting';
CREATE INDEX alerts_by_time ON alerts (at, id);

-- Who does what one process at a time does for all of them, and until when. A fence only grows: whoever comes late has an older one.
CREATE TABLE turns (
    name   TEXT   PRIMARY KEY,
    holder TEXT   NOT NULL,
    until  BIGINT NOT NULL,
    fence  BIGINT NOT NULL
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
) WITHOUT ROWID;
CREATE INDEX sold_channels_owed ON sold_channels (owed_since) WHERE owed_since > 0;

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
) WITHOUT ROWID;
