-- The ledger of a fleet, in PostgreSQL. Columns mean what they mean in schema.sql; what is different is said here. Money is micro-dollars
-- (usd) and decimal text (amount), times are Unix microseconds by the server's clock. Everything here is what other engines that speak
-- PostgreSQL carry, too: no triggers, no advisory locks, no LISTEN, no order by an identity column where a row may not be missed.

CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);

-- Rows that are locked, and never changed: 'ledger' by whoever writes outside the money path, 'freeze' by who has frozen (and shared by
-- who submits), 'session' by whoever begins one.
CREATE TABLE locks (name TEXT PRIMARY KEY, touched BIGINT);
INSERT INTO locks (name) VALUES ('ledger'), ('freeze'), ('session');

-- Who does what one process at a time does for all of them, and until when. A fence only grows: whoever comes late has an older one.
CREATE TABLE turns (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until BIGINT NOT NULL, fence BIGINT NOT NULL);

-- What was written outside the money path, so that a commit whose answer was lost is found out by doing the same again.
CREATE TABLE operations (id TEXT PRIMARY KEY, at BIGINT NOT NULL);
CREATE INDEX operations_by_time ON operations (at);

-- The processes that work on payments, or wait for them: dead once until has passed.
CREATE TABLE instances (
    id TEXT PRIMARY KEY, agent TEXT NOT NULL, host TEXT NOT NULL, until BIGINT NOT NULL, login TEXT NOT NULL -- whose it is
);

-- One audit chain for each home that writes, so that no two of them wait for each other's link.
CREATE TABLE writers (
    name TEXT PRIMARY KEY, host TEXT NOT NULL, login TEXT NOT NULL, -- whose it is
    head BIGINT NOT NULL DEFAULT 0, hash BYTEA NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE TABLE audit (
    writer TEXT NOT NULL, seq BIGINT NOT NULL, at BIGINT NOT NULL, payment BIGINT NOT NULL, event TEXT NOT NULL,
    detail JSON NOT NULL,                   -- as it was written: json keeps the text
    hash BYTEA NOT NULL, seal BYTEA, PRIMARY KEY (writer, seq)
);
CREATE INDEX audit_by_payment ON audit (payment, at);
CREATE INDEX audit_signed ON audit (writer) WHERE event = 'signed';
CREATE INDEX audit_uses ON audit (at) WHERE event IN ('approval used', 'approval returned');

-- Server timelines: a new one is a failover.
CREATE TABLE epochs (timeline TEXT PRIMARY KEY, since BIGINT NOT NULL);

-- The owner's budgets, written by policy_apply alone. NULL is no limit of its own.
CREATE TABLE budgets (
    id TEXT PRIMARY KEY,                    -- 'org', 'team:research', 'agent:research-7', 'each:research-*', 'host:api.example.com'
    parent TEXT,                            -- of a team; NULL: the organisation's
    members TEXT[] NOT NULL DEFAULT '{}',   -- of a team: patterns of agents' names
    per_call BIGINT, session BIGINT, day BIGINT, month BIGINT, rate BIGINT,
    version BIGINT NOT NULL                 -- of the rules
);
-- A window of a budget. The CHECK is the cap, whatever any code does.
CREATE TABLE counters (
    budget TEXT NOT NULL, win TEXT NOT NULL, starts BIGINT NOT NULL,
    used BIGINT NOT NULL DEFAULT 0,         -- held or spent; of a session starts is its number
    cap BIGINT NOT NULL,
    PRIMARY KEY (budget, win, starts), CONSTRAINT cap CHECK (used BETWEEN 0 AND cap)
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
-- How many payments were made in a second that count in a budget with a rate, or in the organisation's; failed ones too. For two hours.
CREATE TABLE made (budget TEXT, starts BIGINT, n BIGINT NOT NULL, PRIMARY KEY (budget, starts)) WITH (fillfactor = 40);
-- Whose funds are compared with what is held of them: locked by each hold of that source.
CREATE TABLE sources (source TEXT, asset TEXT, network TEXT, PRIMARY KEY (source, asset, network));

CREATE TABLE sessions (
    id TEXT PRIMARY KEY, started_at BIGINT NOT NULL, last_at BIGINT NOT NULL, cap BIGINT, ended BIGINT NOT NULL DEFAULT 0, seal BYTEA,
    number BIGINT GENERATED ALWAYS AS IDENTITY  -- what its windows begin with: two sessions may begin at one time
);
CREATE UNIQUE INDEX sessions_open ON sessions (ended) WHERE ended = 0;

CREATE TABLE payments (
    seq BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE, id TEXT PRIMARY KEY, session TEXT NOT NULL, state TEXT NOT NULL,
    proof TEXT NOT NULL DEFAULT '', created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, fingerprint BYTEA NOT NULL,
    idempotency_key TEXT, method TEXT NOT NULL, url TEXT NOT NULL, target TEXT NOT NULL, host TEXT NOT NULL, network TEXT NOT NULL,
    scheme TEXT NOT NULL, dialect TEXT NOT NULL, asset TEXT NOT NULL, symbol TEXT NOT NULL, amount TEXT NOT NULL, usd BIGINT NOT NULL,
    pay_to TEXT NOT NULL, source TEXT NOT NULL, record BYTEA NOT NULL, unique_key BYTEA UNIQUE,
    transaction_id TEXT NOT NULL DEFAULT '', facilitator TEXT NOT NULL DEFAULT '', receipt BYTEA, chain_proof BYTEA,
    note TEXT NOT NULL DEFAULT '', false_receipt BIGINT NOT NULL DEFAULT 0, lease_owner TEXT NOT NULL DEFAULT '',
    waiter TEXT NOT NULL DEFAULT '', delivered BIGINT NOT NULL DEFAULT 0, prefix_length BIGINT NOT NULL,
    charged TEXT NOT NULL DEFAULT '', returned BIGINT NOT NULL DEFAULT 0, agent TEXT NOT NULL DEFAULT '',
    budgets TEXT[] NOT NULL DEFAULT '{}',   -- that it counts in, from its agent's up, then the hosts'
    operations TEXT[] NOT NULL DEFAULT '{}' -- the last steps that were taken with it: a step that is repeated is known by it
) WITH (fillfactor = 70);
CREATE INDEX payments_by_time ON payments (created_at);
CREATE INDEX payments_by_agent ON payments (agent, created_at);
CREATE INDEX payments_resumable ON payments (fingerprint) WHERE state IN ('reserved', 'submitted', 'unknown') OR state = 'settled' AND delivered = 0;
CREATE INDEX payments_unfinished ON payments (seq) WHERE state IN ('reserved', 'submitted', 'unknown');
CREATE INDEX payments_held ON payments (source, asset) WHERE state IN ('reserved', 'submitted', 'unknown');
CREATE INDEX payments_taken ON payments (source, asset, updated_at) WHERE state = 'settled';
CREATE INDEX payments_by_transaction ON payments (substr(transaction_id, 1, 20)) WHERE transaction_id <> '';
CREATE INDEX payments_claimed ON payments (seq) WHERE state = 'settled' AND proof = 'claimed';
CREATE UNIQUE INDEX payments_by_key ON payments (idempotency_key, agent) WHERE idempotency_key IS NOT NULL AND state <> 'failed';

CREATE TABLE contents (
    payment BIGINT PRIMARY KEY, http_status BIGINT NOT NULL, type TEXT NOT NULL, truncated BIGINT NOT NULL, size BIGINT NOT NULL,
    sha256 BYTEA NOT NULL, spare BIGINT NOT NULL, removed TEXT NOT NULL DEFAULT ''
);
CREATE INDEX contents_spare ON contents (payment) WHERE removed = '' AND spare = 1;
CREATE TABLE bodies (payment BIGINT PRIMARY KEY, body BYTEA NOT NULL);
-- How many bytes of content were stored when somebody added them up last, and how many of them nobody had got.
CREATE TABLE content_use (id BIGINT PRIMARY KEY CHECK (id = 1), stored BIGINT NOT NULL, owed BIGINT NOT NULL);
INSERT INTO content_use VALUES (1, 0, 0);

-- What was ever signed, as far as later decisions need it.
CREATE TABLE memory (key BYTEA PRIMARY KEY, value BYTEA NOT NULL);

CREATE TABLE delegations (network TEXT, account TEXT, largest TEXT NOT NULL, PRIMARY KEY (network, account));
CREATE TABLE rules (version BIGINT PRIMARY KEY, at BIGINT NOT NULL, config BYTEA NOT NULL, seal BYTEA NOT NULL);

CREATE TABLE approvals (
    id TEXT PRIMARY KEY, quote BYTEA NOT NULL, state TEXT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,
    declined BIGINT NOT NULL DEFAULT 0, host TEXT NOT NULL, method TEXT NOT NULL, url TEXT NOT NULL, network TEXT NOT NULL,
    asset TEXT NOT NULL, symbol TEXT NOT NULL, amount TEXT NOT NULL, usd BIGINT NOT NULL, pay_to TEXT NOT NULL, why TEXT NOT NULL,
    agent TEXT NOT NULL, payment TEXT NOT NULL DEFAULT '', since BIGINT NOT NULL DEFAULT 0, seal BYTEA
);
CREATE UNIQUE INDEX approvals_open ON approvals (quote) WHERE state IN ('pending', 'approved', 'denied');
CREATE INDEX approvals_by_payment ON approvals (payment);

CREATE TABLE freezes (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, network TEXT NOT NULL, account TEXT NOT NULL, at BIGINT NOT NULL,
    by TEXT NOT NULL, why TEXT NOT NULL
);
CREATE TABLE lifts (upto BIGINT PRIMARY KEY, at BIGINT NOT NULL, seal BYTEA NOT NULL);

CREATE TABLE alerts (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, subject TEXT NOT NULL, win TEXT NOT NULL, at BIGINT NOT NULL, detail TEXT NOT NULL,
    state TEXT NOT NULL, told_at BIGINT, told_as TEXT NOT NULL DEFAULT '', attempts BIGINT NOT NULL, next_at BIGINT NOT NULL,
    UNIQUE (kind, subject, win)
);
CREATE INDEX alerts_waiting ON alerts (next_at) WHERE state = 'waiting';
CREATE INDEX alerts_by_time ON alerts (at, id);

CREATE TABLE sales (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id TEXT NOT NULL UNIQUE, unique_key TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, resource TEXT NOT NULL, call BYTEA NOT NULL, identifier TEXT NOT NULL,
    network TEXT NOT NULL, scheme TEXT NOT NULL, asset TEXT NOT NULL, symbol TEXT NOT NULL, amount TEXT NOT NULL, usd BIGINT NOT NULL,
    pay_to TEXT NOT NULL, payer TEXT NOT NULL, requirement TEXT NOT NULL, payload BYTEA NOT NULL, transaction_id TEXT NOT NULL DEFAULT '',
    facilitator TEXT NOT NULL DEFAULT '', receipt TEXT, note TEXT NOT NULL DEFAULT '', answer BYTEA
);
CREATE INDEX sales_by_time ON sales (created_at);
CREATE INDEX sales_bought ON sales (call, payer);
-- of two payments that a payer gave one name one is a sale
CREATE UNIQUE INDEX sales_named ON sales (identifier, payer) WHERE identifier <> '' AND payer <> '' AND state <> 'failed';
CREATE INDEX sales_answered ON sales (updated_at) WHERE answer IS NOT NULL;

CREATE TABLE sold_channels (
    network TEXT, channel TEXT, config TEXT NOT NULL, charged TEXT NOT NULL, ceiling TEXT NOT NULL, signature TEXT NOT NULL,
    balance TEXT NOT NULL, claimed TEXT NOT NULL, refunds BIGINT NOT NULL, withdraws_at BIGINT NOT NULL, holder TEXT NOT NULL,
    held_until BIGINT NOT NULL, owed_since BIGINT NOT NULL, PRIMARY KEY (network, channel)
);
CREATE INDEX sold_channels_owed ON sold_channels (owed_since) WHERE owed_since > 0;

CREATE TABLE channels (
    service TEXT, key TEXT, server TEXT NOT NULL, network TEXT NOT NULL, source TEXT NOT NULL, channel TEXT NOT NULL, epoch TEXT NOT NULL,
    nonce TEXT NOT NULL, amount TEXT NOT NULL, claimed TEXT NOT NULL, signed TEXT, known BIGINT NOT NULL, call TEXT, refused TEXT,
    updated_at BIGINT NOT NULL, PRIMARY KEY (service, key)
);
