package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"x402-wallet/cli"
	"x402-wallet/internal/config"
	"x402-wallet/internal/dashboard"
	"x402-wallet/internal/loopback"
	"x402-wallet/internal/ownfile"
	"x402-wallet/internal/passkey"
	"x402-wallet/internal/passkey/invitation"
	"x402-wallet/tools"
	"x402-wallet/wallet/agent"
	"x402-wallet/wallet/seal"
)

func passkeys(rules *config.Config) map[string]passkey.Key {
	keys := map[string]passkey.Key{}
	for name, k := range rules.Passkeys {
		keys[name] = passkey.Key(k)
	}
	return keys
}

// passkeysOf are those of a guard's rules, if their seal is good.
func passkeysOf(guard *seal.Guard,
	rules *config.Config) func(ctx context.Context) (map[string]passkey.Key, error) {
	return func(ctx context.Context) (map[string]passkey.Key, error) {
		if err := guard.VerifySeals(ctx); err != nil {
			return nil, err
		}
		return passkeys(rules), nil
	}
}

// approver approves by the owner's passkeys with a guard's key.
func (a *app) approver(guard *seal.Guard,
	keys func(ctx context.Context) (map[string]passkey.Key, error)) *agent.Approver {
	return &agent.Approver{Store: guard.Store, Guard: guard, Passkeys: keys, Checker: a.passkeys}
}

// ownersPages are where browsers find the service's pages, and the rules as they are, or empty ones.
type ownersPages struct {
	origin string
	rules  func() *config.Config
}

// approvalPage is the page of an approval in the service; "": it has none, or none on which anybody could say
// yes, because no passkey is for it.
func (a *app) approvalPage(id string) string {
	pages := a.pages.Load()
	if pages == nil {
		return ""
	}
	for _, key := range pages.rules().Passkeys {
		if key.Origin == pages.origin {
			return pages.origin + "/approvals/" + url.PathEscape(id)
		}
	}
	return ""
}

// webDoor is what the service serves over HTTP: MCP, and beside it the owner's pages.
type webDoor struct {
	listeners []net.Listener
	door      loopback.Door
	handler   http.Handler
	said      string // the file that says where the pages are
}

func (d *webDoor) close() {
	for _, l := range d.listeners {
		_ = l.Close()
	}
	if d.said != "" {
		_ = os.Remove(d.said)
	}
}

func (a *app) webDoor(ctx context.Context, doors cli.Doors, l net.Listener, names func(string) bool,
	server *tools.Server, known *doorkeeper) (*webDoor, error) {
	mcp := server.HTTP(known)
	isNamed := func(host string) bool {
		_, own, _ := strings.Cut(known.Resource().Origin, "://")
		return names(host) || (host == own && own != "")
	}
	d := &webDoor{listeners: []net.Listener{l}, door: loopback.Door{Hosts: isNamed}, handler: mcp}
	at := l.Addr().(*net.TCPAddr)
	origin, err := a.pagesOrigin(at, doors.Certificate != "")
	var other net.Listener
	if err == nil {
		other, err = holdLocalhost(ctx, origin, at)
	}
	if other != nil {
		d.listeners = append(d.listeners, other)
	}
	if err != nil {
		a.log.Warn("the service has no pages for its owner", "why", err)
		return d, nil
	}
	d.said = filepath.Join(a.home, cli.PagesFile)
	if err := ownfile.Write(d.said, []byte(origin+"\n")); err != nil {
		return nil, err
	}
	options := dashboard.ServiceOptions{Origin: origin, Checker: a.passkeys,
		Links: &invitation.Links{Home: a.home}}
	if at.IP.IsLoopback() && passkey.IsLocal(origin) {
		options.Address = at.String()
	}
	pages := dashboard.NewService(options, dashboard.Options{Wallet: server.Wallet, Version: a.version,
		Log: a.log, Now: time.Now})
	d.handler = beside(mcp, pages)
	a.pages.Store(&ownersPages{origin: origin, rules: known.now})
	return d, nil
}

// beside has pages answer what is not MCP's.
func beside(mcp, pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" || strings.HasPrefix(r.URL.Path, "/.well-known/") {
			mcp.ServeHTTP(w, r)
		} else {
			pages.ServeHTTP(w, r)
		}
	})
}

// pagesOrigin is where browsers find the pages: as the owner says, else at this machine's own name.
func (a *app) pagesOrigin(at *net.TCPAddr, isTLS bool) (origin string, err error) {
	rules, err := a.rules()
	switch {
	case err != nil:
		return "", err
	case rules.Service.URL != "":
		origin = rules.Service.URL
	case isTLS || !at.IP.IsLoopback():
		return "", errors.New("[service] url in config.toml does not say where browsers find them")
	default:
		origin = "http://localhost:" + strconv.Itoa(at.Port)
	}
	_, err = passkey.RPID(origin)
	return origin, err
}

// holdLocalhost listens at localhost's other address as well: a browser tries both, so whoever had that one
// would have the pages' origin, and could have the owner's passkey say yes to what they never saw. Where the
// machine has no such address nobody can.
func holdLocalhost(ctx context.Context, origin string, at *net.TCPAddr) (net.Listener, error) {
	u, err := url.Parse(origin)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" || !passkey.IsLocal(origin) || u.Port() != strconv.Itoa(at.Port) {
		return nil, nil // a certificate says who it is, or what leads there is the owner's
	}
	other := net.JoinHostPort("::1", u.Port())
	switch {
	case at.IP.Equal(net.IPv6loopback):
		other = net.JoinHostPort("127.0.0.1", u.Port())
	case !at.IP.Equal(net.IPv4(127, 0, 0, 1)):
		return nil, fmt.Errorf("%s is not where browsers look for localhost", at.IP)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", other)
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("a browser may take %s for localhost, and it cannot be held: %w", other, err)
	}
	return l, nil
}
