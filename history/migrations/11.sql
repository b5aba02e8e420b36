-- Long URLs are not in the index of trigrams.
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
