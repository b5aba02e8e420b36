CREATE TABLE rules (
    version INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    config  BLOB    NOT NULL,
    seal    BLOB    NOT NULL
);
