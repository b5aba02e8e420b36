// Package loopback is what the wallet's listeners have in common (door.go), most of which are of this machine
// alone, and what its pages have (packages ask and dashboard).
//
// What must stay true: no listener answers to a name that is not its own, nor to a page of another origin; a
// page is answered only under the very address it was given out with; and no page loads anything from
// outside, runs a script or can be framed.
package loopback

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// maxHeaders bounds a request's headers; a browser sends under 2 KiB.
const maxHeaders = 16 << 10

// Listen listens at an address of the loopback interface, "127.0.0.1:0" for any port; others are
// refused, and names are, too: what they mean is somebody else's word.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() || at.Addr().Zone() != "" {
		return nil, fmt.Errorf("%q is no address of this machine alone, like 127.0.0.1:8402", address)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("serve the page: %w", err)
	}
	return listener, nil
}

// Headers are those of every answer. style is the page's one style sheet, which the content
// security policy names by its hash; more are further directives of the policy.
func Headers(h http.Header, style string, more ...string) {
	hash := sha256.Sum256([]byte(style))
	policy := []string{"default-src 'none'",
		"style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'",
		"form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", strings.Join(append(policy, more...), "; "))
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer a browser posts Origin: null
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// errForm says that what was posted is not this page's form.
var errForm = errors.New("not this form")

// Form reads a form of at most so many bytes, in which each field comes once at most. A passphrase
// in it passes through strings of net/url, which cannot be wiped.
func Form(w http.ResponseWriter, r *http.Request, most int64) (url.Values, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, errForm
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	defer clear(body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, errForm
	}
	for _, values := range form {
		if len(values) != 1 {
			return nil, errForm
		}
	}
	return form, nil
}
