-- What x402_history looks through, narrow; and long URLs are not in the index of trigrams.
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

CREATE INDEX briefs_long ON briefs (seq) WHERE length(url) > 512;
INSERT INTO urls (urls, rowid, text) SELECT 'delete', seq, url FROM payments
    WHERE seq IN (SELECT seq FROM briefs WHERE length(url) > 512) AND seq <= (SELECT max(seq) / 256 * 256 FROM payments);
INSERT INTO rests (rests, rowid, text) SELECT 'delete', seq, rest FROM payments
    WHERE seq IN (SELECT seq FROM briefs WHERE length(url) > 512) AND seq <= (SELECT max(seq) / 256 * 256 FROM payments);
DROP TRIGGER payments_block;
CREATE TRIGGER payments_block AFTER INSERT ON payments WHEN NEW.seq % 256 = 0 BEGIN
    INSERT INTO urls (rowid, text) SELECT seq, url FROM payments WHERE seq > NEW.seq - 256 AND seq <= NEW.seq AND length(url) <= 512;
    INSERT INTO rests (rowid, text) SELECT seq, rest FROM payments WHERE seq > NEW.seq - 256 AND seq <= NEW.seq AND length(url) <= 512;
END;
