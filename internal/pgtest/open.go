package pgtest

// Open starts a server where there is no test, as for a demo. It is ErrNotInstalled without PostgreSQL's
// programs. Close stops the server and removes its files.
func Open(settings ...string) (*Cluster, error) { return start(settings) }

// Close stops a server that Open started.
func (c *Cluster) Close() { c.close() }
