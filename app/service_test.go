package app

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

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
	own, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
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
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", own.Addr().String())
		require.NoError(t, err)
		return conn
	}
	first, second := dial(), dial() // half of four
	at := []net.Conn{<-served, <-served}
	surplus := dial()
	_, err = surplus.Read(make([]byte, 1))
	require.Error(t, err, "it is closed")
	for i := range at {
		_, err = at[i].Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, at[i].Close())
		_ = at[i].Close() // once more gives back nothing more
	}
	for _, conn := range []net.Conn{first, second} {
		_, err = conn.Read(make([]byte, 1))
		require.NoError(t, err)
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
