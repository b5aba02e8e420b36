package loopback

import (
	"net/http/httptest"
	"strings"
	"testing"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// Nobody but this machine is listened to, and no name is asked what it means.
func TestListen(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "localhost:0", "192.168.1.1:0", "[::]:0", "127.0.0.1",
		"", "[fe80::1%lo]:0", "8.8.8.8:80", "[::ffff:8.8.8.8]:0"} {
		t.Run(address, func(t *testing.T) {
			_, err := Listen(t.Context(), address)
			require.ErrorContains(t, err, "no address of this machine alone", address)
		})
	}
	listener := must.Get(Listen(t.Context(), "127.0.0.1:0"))(t)
	require.Regexp(t, `^127\.0\.0\.1:\d+$`, listener.Addr().String())
	require.ErrorContains(t, must.Err(Listen(t.Context(), listener.Addr().String())), "serve the page")
	require.NoError(t, listener.Close())
}

func TestForm(t *testing.T) {
	post := func(body, kind string) error {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		return must.Err(Form(httptest.NewRecorder(), r, 20))
	}
	require.NoError(t, post("a=1&b=2", "application/x-www-form-urlencoded; charset=utf-8"))
	require.ErrorIs(t, post("a=1&a=2", "application/x-www-form-urlencoded"), errForm)
	require.ErrorIs(t, post("a=%zz", "application/x-www-form-urlencoded"), errForm)
	require.ErrorIs(t, post("a=1", "text/plain"), errForm)
	require.ErrorIs(t, post("a=1", ""), errForm)
	require.Error(t, post("a="+strings.Repeat("x", 20), "application/x-www-form-urlencoded"))
}
