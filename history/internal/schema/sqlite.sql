-- What SQLite has besides: an index with all that x402_history looks at and adds up, so that no signed bytes are read for it.
CREATE INDEX payments_found ON payments (created_at, seq, state, symbol, host, network, agent, usd, returned, url);
