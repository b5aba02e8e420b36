-- What PostgreSQL has besides: which processes live, and until when that is believed.
CREATE TABLE instances (
    id    TEXT PRIMARY KEY,
    host  TEXT NOT NULL,
    until INTEGER NOT NULL
);
