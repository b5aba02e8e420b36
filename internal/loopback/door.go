package loopback

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Door says which requests a listener answers: those that name one of its hosts, and that no page of another
// origin sent. Else a web page could read and post here with the access of its person's browser: by a name
// that was made to resolve to this machine (DNS rebinding), or across origins.
type Door struct {
	Hosts func(host string) bool // as a request has it in Host
	// Origin is that of the pages that are served here, which what is posted has to name; "": programs call,
	// and name none.
	Origin string
	// Pages says which other origins' pages may call, too; nil: none.
	Pages func(origin string) bool
	// Refuse answers with ErrHost or ErrOrigin. Without it they are 421 and 403.
	Refuse func(w http.ResponseWriter, r *http.Request, why error)
}

// Why a request is refused.
var (
	ErrHost   = errors.New("this is not the host that was asked for")
	ErrOrigin = errors.New("this does not answer pages of another origin")
)

// Check is ErrHost, ErrOrigin or nil. Every listener of ours asks it.
func (d Door) Check(r *http.Request) error {
	if !d.Hosts(r.Host) {
		return ErrHost
	}
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	_, host, _ := strings.Cut(origin, "://")
	isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case origin != "" && d.Pages != nil && d.Pages(origin):
		return nil
	case origin == "" && d.Origin != "" && r.Method == http.MethodPost:
	case origin != "" && d.Origin == "" && host != r.Host:
	case origin != "" && d.Origin != "" && origin != d.Origin:
	case !isRead && site != "" && site != "same-origin":
	default:
		return nil
	}
	return ErrOrigin
}

// Guard lets through what passes Check.
func (d Door) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := d.Check(r)
		switch {
		case err == nil:
			next.ServeHTTP(w, r)
		case d.Refuse != nil:
			d.Refuse(w, r, err)
		case errors.Is(err, ErrHost):
			http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		default:
			http.Error(w, err.Error(), http.StatusForbidden)
		}
	})
}

// headerTime bounds the wait for a request's headers.
const headerTime = 10 * time.Second

// Server serves h behind the door.
func (d Door) Server(h http.Handler) *http.Server {
	return &http.Server{Handler: d.Guard(h), ReadHeaderTimeout: headerTime}
}

// PageServer is Server for pages, each of which is asked for by itself.
func (d Door) PageServer(h http.Handler) *http.Server {
	server := d.Server(h)
	server.ReadTimeout, server.MaxHeaderBytes = 10*time.Second, maxHeaders
	server.SetKeepAlivesEnabled(false)
	return server
}

func Only(host string) func(string) bool { return func(asked string) bool { return asked == host } }

// Local are the names of this machine, with any port: none of them can be made to mean another.
func Local(host string) bool {
	name := Name(host)
	at, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || (err == nil && at.Unmap().IsLoopback())
}

// Name is a host without its port.
func Name(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return name
}
