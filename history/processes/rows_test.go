package processes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/processes"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/history/sqldb/sqlite"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// A process of a server lives for as long as one of its Stores does, and again with the next one.
func TestAProcessLivesWithItsStores(t *testing.T) {
	server := postgres.Server{URL: pgtest.Shared(t).Database(t)}
	must.Get(ledgers.MakePostgres(t.Context(), server))(t)
	db := must.Get(postgres.Open(server))(t)
	defer db.Close()
	join := processes.Rows(db, time.Minute)
	other := processes.Rows(db, time.Minute)()
	first, second := join(), join()
	id := must.Get(first.Join())(t)
	require.Equal(t, id, must.Get(second.Join())(t))
	first.Leave()
	require.True(t, other.Alive(id))
	second.Leave()
	require.False(t, other.Alive(id))
	third := join()
	defer third.Leave()
	require.True(t, other.Alive(must.Get(third.Join())(t)))
}

// leaving is a process that is slow to end.
type leaving struct {
	history.Process
	ends func()
}

func (p leaving) Leave() { p.ends(); p.Process.Leave() }

// A Store is not shared any more once its process ends: the new one would be a dead process's.
func TestAClosedLedgerIsNotShared(t *testing.T) {
	opened, _, home := historytest.SQLite(t, historytest.Options())
	require.NoError(t, opened.Close())
	db := must.Get(sqlite.Open(sqlite.File{Home: home, Name: history.FileName}))(t)
	var s *history.Store
	isShared := make(chan bool, 1)
	share := func() {
		go func() {
			_, open := s.Share(historytest.Options())
			isShared <- open
		}()
		time.Sleep(50 * time.Millisecond)
	}
	join := func() history.Process { return leaving{processes.Files(home), share} }
	s = must.Get(history.New(t.Context(), db, home, join, historytest.Options()))(t)
	require.NoError(t, s.Close())
	require.False(t, <-isShared)
}
