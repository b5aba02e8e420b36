-- A ledger of format 10: that of format 9, and the step.
BEGIN TRANSACTION;
CREATE TABLE audit (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    payment TEXT NOT NULL,
    event   TEXT NOT NULL,
    detail  TEXT NOT NULL,
    hash    BLOB NOT NULL
);
INSERT INTO audit VALUES(1,1795262400000001,'','created','{"format":1}',X'041bb7fac32d68c429a7308a13d3fcfd42dfb1f2c803fd37ee002ad1d536900e');
INSERT INTO audit VALUES(2,1795262400000003,'','session','{"cap":null,"id":"ses_c53f8ffd9d628560eb37991b85266686"}',X'fdff7a500bcae5c6582f2eec6cf027fa8e2ec9e8fd0f93ad01f6dd165c399e94');
INSERT INTO audit VALUES(3,1795262400000003,'pay_settled','reserved','{"amount":"1000","asset":"0xasset","network":"eip155:84532","payTo":"0xpayee","url":"https://api.example/weather"}',X'14fc4744b7725302f3740d5adef126ac5bcbb1639a12a74bde58dc4422bb1322');
INSERT INTO audit VALUES(4,1795262400000004,'pay_settled','submitted','{"evidence":{"network":"","asset":"","payer":"","payTo":"","amount":"0","expiresAt":"0001-01-01T00:00:00Z"},"payload":"3f024a3d64024208cb2b7b024edc1cdd90c90002a97157c233b02ef773fd68d7"}',X'5212f5edd4e3d422046a2d1347f6e71d1049b12032479798408362a1173ce55a');
INSERT INTO audit VALUES(5,1795262400000005,'pay_settled','settled','{"note":"","proof":"claimed","transaction":"0xtx"}',X'628e599b95b67d18e15cde95b739ec33281f30bd6b0197ea6a5384b88bb9641a');
INSERT INTO audit VALUES(6,1795262400000006,'pay_settled','settled','{"note":"","proof":"claimed","transaction":""}',X'f773f40be2de5ece109d49a508220377a5ce548412b00472be5cf6660d550fdf');
INSERT INTO audit VALUES(7,1795262400000007,'pay_failed','reserved','{"amount":"2000","asset":"0xasset","network":"eip155:84532","payTo":"0xpayee","url":"https://api.example/weather"}',X'1d7b2f715edd18a77aeafaf7fac9ffe05890a6b0cd664ca636d595cf5d0c49d0');
INSERT INTO audit VALUES(8,1795262400000008,'pay_failed','submitted','{"evidence":{"network":"","asset":"","payer":"","payTo":"","amount":"0","expiresAt":"0001-01-01T00:00:00Z"},"payload":"3f024a3d64024208cb2b7b024edc1cdd90c90002a97157c233b02ef773fd68d7"}',X'0f673e3f17e89a99b465c7a27b834fecf049f3d60e3b8ff29b960986616476f2');
INSERT INTO audit VALUES(9,1795262400000009,'pay_failed','failed','{"note":"","proof":"","transaction":"0xtx"}',X'6c1ff9eac770c070e51d71df4884991d3e32363474fea6a468d29235df26cdb3');
INSERT INTO audit VALUES(10,1795262400000010,'pay_unknown','reserved','{"amount":"3000","asset":"0xasset","network":"eip155:84532","payTo":"0xpayee","url":"https://api.example/weather"}',X'b9c8115d005c234131b5fce2aece1a950be577f67dd1360c3fe4b88a7d3047d1');
INSERT INTO audit VALUES(11,1795262400000011,'pay_unknown','submitted','{"evidence":{"network":"","asset":"","payer":"","payTo":"","amount":"0","expiresAt":"0001-01-01T00:00:00Z"},"payload":"3f024a3d64024208cb2b7b024edc1cdd90c90002a97157c233b02ef773fd68d7"}',X'e6c64c9043bcdfd74005203997d41108bc5b2644f9e3e183348330cab41f53a4');
INSERT INTO audit VALUES(12,1795262400000012,'pay_unknown','unknown','{"note":"","proof":"","transaction":"0xtx"}',X'8c57b12a8388018488e8e7d2b09f119a05dc004050992f1a534cc5f8ae3d498e');
INSERT INTO audit VALUES(13,1795262400000013,'pay_submitted','reserved','{"amount":"4000","asset":"0xasset","network":"eip155:84532","payTo":"0xpayee","url":"https://api.example/weather"}',X'ed09cb921a1d7c1f8e3da46ec15115d58b68639d9de2a018c0b1a183320b62e5');
INSERT INTO audit VALUES(14,1795262400000014,'pay_submitted','submitted','{"evidence":{"network":"","asset":"","payer":"","payTo":"","amount":"0","expiresAt":"0001-01-01T00:00:00Z"},"payload":"3f024a3d64024208cb2b7b024edc1cdd90c90002a97157c233b02ef773fd68d7"}',X'cf639350c4fca4eeaf9559afebfe3cf4bafb2cf7493406cfb84a455873ce2bc4');
INSERT INTO audit VALUES(15,1795262400000015,'pay_reserved','reserved','{"amount":"5000","asset":"0xasset","network":"eip155:84532","payTo":"0xpayee","url":"https://api.example/weather"}',X'b0380c1e71f0324fa12756bc3c43ff7bea815c7b46114fb7e427cb16e5bd4bc8');
INSERT INTO audit VALUES(16,1795311560537845,'','migrated','{"from":4,"to":5}',X'c38d0fb0c470d389212ec0c6c706688db43f6fff9a4e0b9b9b338b9d3ba6fe8e');
INSERT INTO audit VALUES(17,1795311560541104,'','approval pending','{"host":"api.example","id":"apr_93aa4ed1f32cf2c20888067170ecbf29","network":"","payTo":"0xpayee","price":"0.25"}',X'f6dd16a07421d492a84a3b467cb0758bef606db6203aa3b26f05c303c83a00da');
INSERT INTO audit VALUES(18,1795311560542761,'','approval approved','{"by":"owner","declined":0,"id":"apr_93aa4ed1f32cf2c20888067170ecbf29"}',X'a197a4ac39c7f0f13e18a198e3a0ad86d7da56752d5d70e9929abe199bf2098f');
INSERT INTO audit VALUES(19,1795311560549804,'','approval pending','{"host":"api.example","id":"apr_d7560986d2de43a175b6ee41dbdc138b","network":"","payTo":"0xpayee","price":"0.25"}',X'39ca697f13401e8305a2aae08ed66b6252946777b9dea998cd742da2e27d9da2');
INSERT INTO audit VALUES(20,1795311560554654,'','approval approved','{"by":"owner","declined":0,"id":"apr_d7560986d2de43a175b6ee41dbdc138b"}',X'cd55c8bcd847cf49f28beb99c50e6e4a53b3f714210006fa477a73f17e973d1e');
INSERT INTO audit VALUES(21,1795311560558718,'','approval pending','{"host":"api.example","id":"apr_e07c4cc1422157229dd598587c9c3eef","network":"","payTo":"0xpayee","price":"0.25"}',X'ffd18b76d17e6c5b6042f26d9ec028f7107604ff8646378daaf8d8e3abc7bac6');
INSERT INTO audit VALUES(22,1795311560562704,'','frozen','{"account":"","by":"owner","network":"","why":"w"}',X'a357661be55ba721d1c8ca72c35eec177b0ba86d7f0b4a08b777bf3cbbf1af02');
INSERT INTO audit VALUES(23,1795311560563645,'','unfrozen','{"lifted":1}',X'c7bad94e34287ff41bcba537ffa034488f5945b5001ba86b5d48f78c6f5f9d0e');
INSERT INTO audit VALUES(24,1795311560564564,'','frozen','{"account":"acc","by":"agent","network":"solana:x","why":"its delegation is to be revoked"}',X'ec0456ae551742d357add4277574d2ed426e899b0701a638cc7367c92c0c3b71');
CREATE TABLE contents (
    payment     TEXT PRIMARY KEY,
    http_status INTEGER NOT NULL,
    type        TEXT NOT NULL,
    truncated   INTEGER NOT NULL,
    body        BLOB NOT NULL
);
INSERT INTO contents VALUES('pay_settled',200,'text/plain',0,X'77656174686572');
CREATE TABLE delegations (
    network TEXT NOT NULL,
    account TEXT NOT NULL,
    largest TEXT NOT NULL,
    PRIMARY KEY (network, account)
) WITHOUT ROWID;
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO meta VALUES('format','6');
INSERT INTO meta VALUES('ledger_id','led_cc1f366171d4ccbdfdf31ef6adbb79f0');
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
    requirement     TEXT NOT NULL,          -- the option as the facilitator is told it
    payload         BLOB,                   -- the signed bytes: on disk before they leave
    evidence        TEXT,                   -- what the chain is asked by
    trace           TEXT UNIQUE,            -- nonce or our own signature: one per signed payment
    transaction_id  TEXT NOT NULL DEFAULT '',
    facilitator     TEXT NOT NULL DEFAULT '',
    receipt         TEXT,
    chain_proof     TEXT,                   -- the chain's answer
    note            TEXT NOT NULL DEFAULT '',
    false_receipt   INTEGER NOT NULL DEFAULT 0,
    driver          TEXT NOT NULL DEFAULT '', -- the process that works on it now
    caller          TEXT NOT NULL DEFAULT '', -- the process whose client waits for the answer
    delivered       INTEGER NOT NULL DEFAULT 0
, payee TEXT NOT NULL DEFAULT '', resource TEXT NOT NULL DEFAULT '');
INSERT INTO payments VALUES(1,'pay_settled','ses_c53f8ffd9d628560eb37991b85266686','settled','claimed',1795262400000003,1795262400000006,X'0000000000000000000000000000000000000000000000000000000000000000',NULL,'GET','https://api.example/weather','','api.example','eip155:84532','exact','v2','0xasset','USDC','1000',1000,'0xpayee','0xagent','{}',X'7b227369676e6564223a747275657d','{"network":"","asset":"","payer":"","payTo":"","amount":"0","expiresAt":"0001-01-01T00:00:00Z"}','pay_settled','0xtx','',NULL,NULL,'',0,'run_47a0020518e3207b0e784bdc986bddb1','run_47a0020518e3207b0e784bdc986bddb1',0,'0xpayee','');
INSERT INTO payments VALUES(2,'pay_failed','ses_c53f8ffd9d628560eb37991b85266686','failed','',1795262400000007,1795262400000009,X'0000000000000000000000000000000000000000000000000000000000000000',NULL,'GET','https://api.example/weather','','api.example','eip155:84532','exact','v2','0xasset','USDC','2000',2000,'0xpayee','0xagent','{}',X'7b227369676e6564223a747275657d','{"network":"","asset":"","payer":"","payTo":"","amount":"0","expiresAt":"0001-01-01T00:00:00Z"}','pay_failed','0xtx','',NULL,NULL,'',0,'run_47a0020518e3207b0e784bdc986bddb1','run_47a0020518e3207b0e784bdc986bddb1',0,'0xpayee','');
INSERT INTO payments VALUES(3,'pay_unknown','ses_c53f8ffd9d628560eb37991b85266686','unknown','',1795262400000010,1795262400000012,X'0000000000000000000000000000000000000000000000000000000000000000',NULL,'GET','https://api.example/weather','','api.example','eip155:84532','exact','v2','0xasset','USDC','3000',3000,'0xpayee','0xagent','{}',X'7b227369676e6564223a747275657d','{"network":"","asset":"","payer":"","payTo":"","amount":"0","expiresAt":"0001-01-01T00:00:00Z"}','pay_unknown','0xtx','',NULL,NULL,'',0,'run_47a0020518e3207b0e784bdc986bddb1','run_47a0020518e3207b0e784bdc986bddb1',0,'0xpayee','');
INSERT INTO payments VALUES(4,'pay_submitted','ses_c53f8ffd9d628560eb37991b85266686','submitted','',1795262400000013,1795262400000014,X'0000000000000000000000000000000000000000000000000000000000000000',NULL,'GET','https://api.example/weather','','api.example','eip155:84532','exact','v2','0xasset','USDC','4000',4000,'0xpayee','0xagent','{}',X'7b227369676e6564223a747275657d','{"network":"","asset":"","payer":"","payTo":"","amount":"0","expiresAt":"0001-01-01T00:00:00Z"}','pay_submitted','','',NULL,NULL,'',0,'run_47a0020518e3207b0e784bdc986bddb1','run_47a0020518e3207b0e784bdc986bddb1',0,'0xpayee','');
INSERT INTO payments VALUES(5,'pay_reserved','ses_c53f8ffd9d628560eb37991b85266686','reserved','',1795262400000015,1795262400000015,X'0000000000000000000000000000000000000000000000000000000000000000',NULL,'GET','https://api.example/weather','','api.example','eip155:84532','exact','v2','0xasset','USDC','5000',5000,'0xpayee','0xagent','',NULL,NULL,NULL,'','',NULL,NULL,'',0,'run_47a0020518e3207b0e784bdc986bddb1','run_47a0020518e3207b0e784bdc986bddb1',0,'0xpayee','');
CREATE TABLE rules (
    version INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    config  BLOB    NOT NULL,
    seal    BLOB    NOT NULL
);
CREATE TABLE sessions (
    id         TEXT PRIMARY KEY,
    started_at INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,            -- its last payment
    cap        INTEGER,                     -- the delegation found at its start; NULL: none
    ended      INTEGER NOT NULL DEFAULT 0
, seal BLOB) WITHOUT ROWID;
INSERT INTO sessions VALUES('ses_c53f8ffd9d628560eb37991b85266686',1795262400000003,1795262400000015,NULL,0,NULL);
CREATE TABLE totals (
    scope TEXT    NOT NULL,                 -- all | session | host | symbol
    key   TEXT    NOT NULL,
    day   INTEGER NOT NULL,                 -- days since 1970
    spent INTEGER NOT NULL,                 -- settled, micro-dollars
    held  INTEGER NOT NULL,                 -- reserved, submitted, unknown
    PRIMARY KEY (scope, key, day)
) WITHOUT ROWID;
INSERT INTO totals VALUES('all','',20778,1000,12000);
INSERT INTO totals VALUES('host','api.example',20778,1000,12000);
INSERT INTO totals VALUES('session','ses_c53f8ffd9d628560eb37991b85266686',20778,1000,12000);
INSERT INTO totals VALUES('symbol','USDC',20778,1000,12000);
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
, since INTEGER NOT NULL DEFAULT 0, seal BLOB) WITHOUT ROWID;
INSERT INTO approvals VALUES('apr_93aa4ed1f32cf2c20888067170ecbf29',X'0100000000000000000000000000000000000000000000000000000000000000','used',1795311560541104,1795315160542761,0,'api.example','','','','','','0',250000,'0xpayee','','pay_settled',0,NULL);
INSERT INTO approvals VALUES('apr_d7560986d2de43a175b6ee41dbdc138b',X'0100000000000000000000000000000000000000000000000000000000000000','pending',1795311560549804,1795315160554654,0,'api.example','','','','','','0',250000,'0xpayee','','',0,NULL);
INSERT INTO approvals VALUES('apr_e07c4cc1422157229dd598587c9c3eef',X'0200000000000000000000000000000000000000000000000000000000000000','pending',1795311560558718,1795397960558718,0,'api.example','','','','','','0',250000,'0xpayee','','',0,NULL);
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
CREATE TABLE freezes (
    seq     INTEGER PRIMARY KEY,
    network TEXT    NOT NULL,
    account TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    by      TEXT    NOT NULL,
    why     TEXT    NOT NULL
);
INSERT INTO freezes VALUES(1,'solana:x','acc',1795311560564564,'agent','its delegation is to be revoked');
CREATE TABLE lifts (
    upto INTEGER PRIMARY KEY,
    at   INTEGER NOT NULL,
    seal BLOB    NOT NULL
);
CREATE INDEX payments_by_time         ON payments (created_at);
CREATE INDEX payments_by_transaction  ON payments (transaction_id) WHERE transaction_id <> '';
CREATE INDEX payments_not_over        ON payments (fingerprint, seq)
    WHERE state IN ('reserved', 'submitted', 'unknown') OR state = 'settled' AND delivered = 0;
CREATE INDEX payments_unfinished      ON payments (seq) WHERE state IN ('reserved', 'submitted', 'unknown');
CREATE INDEX payments_failed           ON payments (seq) WHERE state = 'failed';
CREATE INDEX payments_held            ON payments (source, asset) WHERE state IN ('reserved', 'submitted', 'unknown');
CREATE INDEX payments_claimed         ON payments (seq) WHERE state = 'settled' AND proof = 'claimed';
CREATE INDEX payments_by_source       ON payments (source, asset, updated_at);
CREATE UNIQUE INDEX payments_by_key  ON payments (idempotency_key) WHERE idempotency_key IS NOT NULL AND state <> 'failed';
CREATE TRIGGER payments_added AFTER INSERT ON payments BEGIN
    INSERT INTO totals (scope, key, day, spent, held) VALUES
        ('all', '', NEW.created_at / 86400000000, (NEW.state = 'settled') * NEW.usd, (NEW.state NOT IN ('settled', 'failed')) * NEW.usd),
        ('session', NEW.session, NEW.created_at / 86400000000, (NEW.state = 'settled') * NEW.usd, (NEW.state NOT IN ('settled', 'failed')) * NEW.usd),
        ('host', NEW.host, NEW.created_at / 86400000000, (NEW.state = 'settled') * NEW.usd, (NEW.state NOT IN ('settled', 'failed')) * NEW.usd),
        ('symbol', NEW.symbol, NEW.created_at / 86400000000, (NEW.state = 'settled') * NEW.usd, (NEW.state NOT IN ('settled', 'failed')) * NEW.usd)
    ON CONFLICT (scope, key, day) DO UPDATE SET spent = spent + excluded.spent, held = held + excluded.held;
END;
CREATE TRIGGER payments_moved AFTER UPDATE OF state ON payments WHEN OLD.state <> NEW.state BEGIN
    UPDATE totals SET
        spent = spent + ((NEW.state = 'settled') - (OLD.state = 'settled')) * NEW.usd,
        held  = held + ((NEW.state NOT IN ('settled', 'failed')) - (OLD.state NOT IN ('settled', 'failed'))) * NEW.usd
    WHERE day = NEW.created_at / 86400000000
      AND (scope = 'all' AND key = '' OR scope = 'session' AND key = NEW.session OR scope = 'host' AND key = NEW.host
        OR scope = 'symbol' AND key = NEW.symbol);
END;
CREATE INDEX audit_by_payment ON audit (payment, seq);
CREATE INDEX payments_by_payee        ON payments (network, payee) WHERE state <> 'failed';
CREATE INDEX payments_by_seller       ON payments (host, network, asset, payee) WHERE state <> 'failed';
CREATE INDEX payments_by_resource     ON payments (resource, seq) WHERE state <> 'failed';
CREATE UNIQUE INDEX approvals_open ON approvals (quote) WHERE state IN ('pending', 'approved', 'denied');
CREATE INDEX approvals_by_payment ON approvals (payment);
CREATE INDEX sales_by_time  ON sales (created_at);
CREATE INDEX sales_answered ON sales (updated_at) WHERE answer IS NOT NULL;
-- x402_history by a part of the URL, and by the hour; and less to write for each payment.
DROP INDEX payments_by_source;
CREATE INDEX payments_by_source       ON payments (source, asset, updated_at) WHERE state = 'settled';
DROP TRIGGER payments_added;
DROP TRIGGER payments_moved;
ALTER TABLE payments ADD COLUMN tail AS (substr(url, instr(url, '://') + 3)) VIRTUAL;
ALTER TABLE payments ADD COLUMN host_ends AS (instr(replace(replace(tail, '?', '/'), '#', '/') || '/', '/')) VIRTUAL;
ALTER TABLE payments ADD COLUMN word AS (substr(tail, host_ends + 1, instr(replace(replace(substr(tail, host_ends + 1), '?', '/'), '#', '/') || '/', '/') - 1)) VIRTUAL;
ALTER TABLE payments ADD COLUMN place AS (substr(url, 1, instr(url, '://') + 1 + host_ends)
        || CASE WHEN substr(tail, host_ends, 1) = '/' AND (word NOT GLOB '*[0-9]*' OR word GLOB 'v[0-9]') THEN '/' || word ELSE '' END) VIRTUAL;
ALTER TABLE payments ADD COLUMN rest AS (substr(url, length(place) + 1)) VIRTUAL;
CREATE TRIGGER payments_added AFTER INSERT ON payments BEGIN
    INSERT INTO totals (scope, key, day, spent, held)
    SELECT column1, column2, column3, (NEW.state = 'settled') * NEW.usd, (NEW.state NOT IN ('settled', 'failed')) * NEW.usd FROM (VALUES
        ('all', '', NEW.created_at / 86400000000),
        ('session', NEW.session, NEW.created_at / 86400000000),
        ('host', NEW.host, NEW.created_at / 86400000000),
        ('symbol', NEW.symbol, NEW.created_at / 86400000000),
        ('hour', NEW.symbol, NEW.created_at / 3600000000),
        ('place', NEW.symbol || char(10) || NEW.place, NEW.created_at / 86400000000),
        ('ever', NEW.symbol || char(10) || NEW.place, 0))
    WHERE true
    ON CONFLICT (scope, key, day) DO UPDATE SET spent = spent + excluded.spent, held = held + excluded.held;
END;

CREATE TRIGGER payments_moved AFTER UPDATE OF state ON payments
WHEN OLD.state <> NEW.state AND (OLD.state IN ('settled', 'failed') OR NEW.state IN ('settled', 'failed')) BEGIN
    UPDATE totals SET
        spent = spent + ((NEW.state = 'settled') - (OLD.state = 'settled')) * NEW.usd,
        held  = held + ((NEW.state NOT IN ('settled', 'failed')) - (OLD.state NOT IN ('settled', 'failed'))) * NEW.usd
    WHERE (scope, key, day) IN (VALUES
        ('all', '', NEW.created_at / 86400000000),
        ('session', NEW.session, NEW.created_at / 86400000000),
        ('host', NEW.host, NEW.created_at / 86400000000),
        ('symbol', NEW.symbol, NEW.created_at / 86400000000),
        ('hour', NEW.symbol, NEW.created_at / 3600000000),
        ('place', NEW.symbol || char(10) || NEW.place, NEW.created_at / 86400000000),
        ('ever', NEW.symbol || char(10) || NEW.place, 0));
END;

CREATE VIRTUAL TABLE urls USING fts5 (text, tokenize = 'trigram', detail = 'none', content = '', columnsize = 0);
CREATE VIRTUAL TABLE rests USING fts5 (text, tokenize = 'trigram', detail = 'none', content = '', columnsize = 0); -- of payments.rest

CREATE TRIGGER payments_block AFTER INSERT ON payments WHEN NEW.seq % 256 = 0 BEGIN
    INSERT INTO urls (rowid, text) SELECT seq, url FROM payments WHERE seq > NEW.seq - 256 AND seq <= NEW.seq;
    INSERT INTO rests (rowid, text) SELECT seq, rest FROM payments WHERE seq > NEW.seq - 256 AND seq <= NEW.seq;
END;

INSERT INTO totals SELECT 'hour', symbol, created_at / 3600000000, sum((state = 'settled') * usd), sum((state NOT IN ('settled', 'failed')) * usd)
    FROM payments GROUP BY 2, 3;
INSERT INTO totals SELECT 'place', symbol || char(10) || place, created_at / 86400000000, sum((state = 'settled') * usd), sum((state NOT IN ('settled', 'failed')) * usd)
    FROM payments GROUP BY 2, 3;
INSERT INTO totals SELECT 'ever', key, 0, sum(spent), sum(held) FROM totals WHERE scope = 'place' GROUP BY key;
INSERT INTO urls (rowid, text) SELECT seq, url FROM payments WHERE seq <= (SELECT max(seq) / 256 * 256 FROM payments);
INSERT INTO rests (rowid, text) SELECT seq, rest FROM payments WHERE seq <= (SELECT max(seq) / 256 * 256 FROM payments);
UPDATE meta SET value = '10' WHERE key = 'format';
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
DROP TRIGGER payments_added;
DROP TRIGGER payments_moved;
CREATE TRIGGER payments_added AFTER INSERT ON payments BEGIN
    INSERT INTO totals (scope, key, day, spent, held)
    SELECT column1, column2, column3, (NEW.state = 'settled') * NEW.usd, (NEW.state NOT IN ('settled', 'failed')) * NEW.usd FROM (VALUES
        ('all', '', NEW.created_at / 86400000000),
        ('session', NEW.session, NEW.created_at / 86400000000),
        ('host', NEW.host, NEW.created_at / 86400000000),
        ('network', NEW.network, NEW.created_at / 86400000000),
        ('symbol', NEW.symbol, NEW.created_at / 86400000000),
        ('hour', NEW.symbol, NEW.created_at / 3600000000),
        ('place', NEW.symbol || char(10) || NEW.place, NEW.created_at / 86400000000),
        ('ever', NEW.symbol || char(10) || NEW.place, 0))
    WHERE true
    ON CONFLICT (scope, key, day) DO UPDATE SET spent = spent + excluded.spent, held = held + excluded.held;
END;

CREATE TRIGGER payments_moved AFTER UPDATE OF state ON payments
WHEN OLD.state <> NEW.state AND (OLD.state IN ('settled', 'failed') OR NEW.state IN ('settled', 'failed')) BEGIN
    UPDATE totals SET
        spent = spent + ((NEW.state = 'settled') - (OLD.state = 'settled')) * NEW.usd,
        held  = held + ((NEW.state NOT IN ('settled', 'failed')) - (OLD.state NOT IN ('settled', 'failed'))) * NEW.usd
    WHERE (scope, key, day) IN (VALUES
        ('all', '', NEW.created_at / 86400000000),
        ('session', NEW.session, NEW.created_at / 86400000000),
        ('host', NEW.host, NEW.created_at / 86400000000),
        ('network', NEW.network, NEW.created_at / 86400000000),
        ('symbol', NEW.symbol, NEW.created_at / 86400000000),
        ('hour', NEW.symbol, NEW.created_at / 3600000000),
        ('place', NEW.symbol || char(10) || NEW.place, NEW.created_at / 86400000000),
        ('ever', NEW.symbol || char(10) || NEW.place, 0));
END;

INSERT INTO totals SELECT 'network', network, created_at / 86400000000, sum((state = 'settled') * usd), sum((state NOT IN ('settled', 'failed')) * usd)
    FROM payments GROUP BY 2, 3;
DROP INDEX payments_failed;
CREATE TABLE briefs (
    seq    INTEGER PRIMARY KEY,
    url    TEXT    NOT NULL,
    usd    INTEGER NOT NULL,
    state  TEXT    NOT NULL,
    symbol TEXT    NOT NULL,
    ends   INTEGER NOT NULL
);
INSERT INTO briefs SELECT seq, lower(url), (state <> 'failed') * usd, state, symbol, length(place) FROM payments;
CREATE INDEX briefs_failed ON briefs (seq, url) WHERE state = 'failed';

CREATE TRIGGER payments_briefed AFTER INSERT ON payments BEGIN
    INSERT INTO briefs VALUES (NEW.seq, lower(NEW.url), (NEW.state <> 'failed') * NEW.usd, NEW.state, NEW.symbol, length(NEW.place));
END;

CREATE TRIGGER payments_restated AFTER UPDATE OF state ON payments WHEN OLD.state <> NEW.state BEGIN
    UPDATE briefs SET state = NEW.state, usd = (NEW.state <> 'failed') * NEW.usd WHERE seq = NEW.seq;
END;
COMMIT;
