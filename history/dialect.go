package history

// What one text of SQL does not say to both engines. Nearly all texts do: these are the places where it would
// cost SQLite an index, or PostgreSQL a lock.

// forUpdate locks the rows that a query of a change answers with. On SQLite nobody else writes.
func (t *tx) forUpdate() string {
	if t.fleet == nil || !t.changes {
		return ""
	}
	return ` FOR UPDATE`
}

// place is the column that events of several chains are put in order by: a fleet has a chain for each home.
func (t *tx) place() string {
	if t.fleet == nil {
		return `seq`
	}
	return `at`
}

// events is the order of events: in a fleet those of several chains by their times.
func (t *tx) events() string {
	if t.fleet == nil {
		return `seq`
	}
	return `at, seq`
}

// lower is a column with its ASCII letters made small, as SQLite's lower does it in any case.
func (t *tx) lower(column string) string {
	if t.fleet == nil {
		return `lower(` + column + `)`
	}
	return `lower(` + column + ` COLLATE "C")`
}

// unindexed keeps SQLite from using an index of a column for a condition.
func (t *tx) unindexed(column string) string {
	if t.fleet == nil {
		return `+` + column
	}
	return column
}
