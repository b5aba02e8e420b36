package app

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/socket"
)

// One user takes half of the places, and no more; what is given back can be taken again.
func TestPlaces(t *testing.T) {
	p := &places[socket.User]{most: 4}
	require.True(t, p.take("1"))
	require.True(t, p.take("1"))
	require.False(t, p.take("1"))
	require.True(t, p.take("2"))
	require.True(t, p.take("3"))
	require.False(t, p.take("4"), "all are taken")
	p.leave("1")
	require.True(t, p.take("4"))
	p.leave("4")
	require.True(t, p.take("1"))
	for _, user := range []socket.User{"1", "1", "2", "3"} {
		p.leave(user)
	}
	require.Zero(t, p.taken)
	require.Empty(t, p.by)
}

// Connections over HTTP that find no place are closed, and those that are there go on; who leaves makes room.
func TestPlacesOverHTTP(t *testing.T) {
	own := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	l := &boundedListener{Listener: own, places: places[netip.Addr]{most: 4}}
	defer l.Close()
	served := make(chan net.Conn)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(served)
				return
			}
			served <- conn
		}
	}()
	dial := func() net.Conn {
		return must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", own.Addr().String()))(t)
	}
	first, second := dial(), dial() // half of four
	at := []net.Conn{<-served, <-served}
	surplus := dial()
	require.Error(t, must.Err(surplus.Read(make([]byte, 1))), "it is closed")
	for i := range at {
		must.Get(at[i].Write([]byte("x")))(t)
		require.NoError(t, at[i].Close())
		_ = at[i].Close() // once more gives back nothing more
	}
	for _, conn := range []net.Conn{first, second} {
		must.Get(conn.Read(make([]byte, 1)))(t)
		require.NoError(t, conn.Close())
	}
	l.places.mu.Lock()
	require.Empty(t, l.places.by)
	l.places.mu.Unlock()
	again := dial()
	conn := <-served
	require.NoError(t, conn.Close())
	require.NoError(t, again.Close())
	require.NoError(t, l.Close())
	_, still := <-served
	require.False(t, still)
}
