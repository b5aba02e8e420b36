package pgtest

// Open starts a server where there is no test, as for a demo. Close stops it and removes all that it had.
func Open(settings ...string) (*Cluster, error) { return start(settings) }

// Close stops a server that Open started.
func (c *Cluster) Close() { c.close() }

// Query is SQL where there is no test.
func Query(url string, statements ...string) (string, error) { return psql(url, statements...) }
