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
