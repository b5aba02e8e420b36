package loopback

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLocal(t *testing.T) {
	for host, is := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:80": true, "127.5.5.5:1": true, "[::1]:1": true, "[::1]": true,
		"localhost": true, "LocalHost:80": true, "[::ffff:127.0.0.1]:1": true,
		"": false, ":80": false, "evil.example": false, "127.0.0.1.evil.example": false,
		"localhost.evil": false, "localhost.": false,
		"2130706433": false, "0x7f.1": false, "0.0.0.0:80": false, "[::]:80": false,
		"192.168.1.1": false, "localhost:80:80": false,
	} {
		require.Equal(t, is, Local(host), host)
	}
}

func TestDoor_Check(t *testing.T) {
	programs := Door{Hosts: Local}
	pages := Door{Hosts: Only("127.0.0.1:80"), Origin: "http://127.0.0.1:80"}
	for _, c := range []struct {
		door                       Door
		method, host, origin, site string
		refused                    error
	}{
		{programs, "POST", "localhost", "", "", nil},
		{programs, "POST", "localhost", "http://localhost", "same-origin", nil},
		{programs, "GET", "localhost", "", "cross-site", nil}, // who opens a link
		{programs, "POST", "localhost", "", "cross-site", ErrOrigin},
		{programs, "POST", "localhost", "", "same-site", ErrOrigin},
		{programs, "GET", "localhost", "http://localhost:81", "", ErrOrigin},
		{programs, "OPTIONS", "localhost", "null", "", ErrOrigin},
		{programs, "GET", "evil.example", "http://evil.example", "same-origin", ErrHost},
		{pages, "GET", "127.0.0.1:80", "", "", nil},
		{pages, "GET", "localhost:80", "", "", ErrHost},
		{pages, "POST", "127.0.0.1:80", "http://127.0.0.1:80", "same-origin", nil},
		{pages, "POST", "127.0.0.1:80", "", "", ErrOrigin},
		{pages, "POST", "127.0.0.1:80", "https://127.0.0.1:80", "", ErrOrigin},
		{pages, "POST", "127.0.0.1:80", "http://127.0.0.1:80", "cross-site", ErrOrigin},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		r.Host = c.host
		for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		require.ErrorIs(t, c.door.Check(r), c.refused, "%+v", c)
	}
}
