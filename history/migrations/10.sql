-- What x402_history looks through, narrow.
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
