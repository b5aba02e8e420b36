package seller

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"sync"
)

// A challenge's cookies are bounded: more than 20, or 8 KiB, is no session.
const (
	maxCookies     = 20
	maxCookieBytes = 8 << 10
)

// Cookies are those that a seller sets with its challenge, for the one call that was asked for: they go back
// with the payment, to the same origin, and are gone with the call. A payment that is shown again by a later
// call goes without them. They are safe for concurrent use.
type Cookies struct {
	mu     sync.Mutex
	origin string
	jar    *cookiejar.Jar
}

// take keeps the cookies of a challenge instead of those of one before.
func (c *Cookies) take(at *url.URL, response *http.Response) {
	if c == nil {
		return
	}
	var some []*http.Cookie
	size := 0
	for _, cookie := range response.Cookies() {
		size += len(cookie.Name) + len(cookie.Value)
		if len(some) == maxCookies || size > maxCookieBytes {
			break
		}
		some = append(some, cookie)
	}
	jar, _ := cookiejar.New(nil) // never fails
	jar.SetCookies(at, some)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.origin, c.jar = origin(at), jar
}

// give puts them into a request to their origin, unless its caller sets cookies itself.
func (c *Cookies) give(at *url.URL, request *http.Request) {
	if c == nil || len(request.Header.Values("Cookie")) > 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jar == nil || c.origin != origin(at) {
		return
	}
	for _, cookie := range c.jar.Cookies(at) {
		request.AddCookie(cookie)
	}
}
