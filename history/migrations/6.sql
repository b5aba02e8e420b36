-- What only the owner may do is sealed. A yes that was given before has to be given again.
ALTER TABLE sessions ADD COLUMN seal BLOB;
ALTER TABLE approvals ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
ALTER TABLE approvals ADD COLUMN seal BLOB;
UPDATE approvals SET state = 'pending' WHERE state = 'approved';
ALTER TABLE freezes RENAME TO freezes_5;
CREATE TABLE freezes (
    seq     INTEGER PRIMARY KEY,
    network TEXT    NOT NULL,
    account TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    by      TEXT    NOT NULL,
    why     TEXT    NOT NULL
);
INSERT INTO freezes (network, account, at, by, why) SELECT network, account, at, by, why FROM freezes_5 ORDER BY at;
DROP TABLE freezes_5;
CREATE TABLE lifts (
    upto INTEGER PRIMARY KEY,
    at   INTEGER NOT NULL,
    seal BLOB    NOT NULL
);
DELETE FROM meta WHERE key = 'looked_at';
