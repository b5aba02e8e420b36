package pgtest

import "testing"

// SQL runs statements as the superuser by psql, and gives what they answer: rows as lines, columns with | between
// them, NULL as nothing. Each is a transaction of its own.
func (c *Cluster) SQL(t testing.TB, database string, statements ...string) string {
	t.Helper()
	said, err := c.psql(database, statements...)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

func (c *Cluster) psql(database string, statements ...string) (string, error) {
	args := []string{"-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", c.URL(database)}
	for _, s := range statements {
		args = append(args, "-c", s)
	}
	return c.program("psql", args...).run()
}
