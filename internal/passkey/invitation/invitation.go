// Package invitation has the service's page and the owner's terminal make a passkey together.
package invitation

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	"x402-wallet/internal/passkey"
	"x402-wallet/internal/socket"
)

// A passkey is made in a browser, on the service's page, and becomes a rule in the owner's terminal, where
// the passphrase is typed. The terminal waits at a socket in the home, and gives the owner a link with a
// token. The service's page asks there what to make, and brings what the browser made: under a MAC by the
// token, which nobody has but the terminal and who opened the link. So what is sealed was made behind that
// link, whoever else reaches the socket, and the service never changes a rule.

const (
	// socketName is its name in the home.
	socketName = "passkeys.sock"
	// Life is how long a link waits for its person.
	Life = 10 * time.Minute
	// exchangeTime bounds one question to the terminal.
	exchangeTime = 10 * time.Second
	// maxMessage bounds a message: an answer, in base64, and a few names.
	maxMessage = 2 * passkey.MaxAnswer
)

// ErrNoLink is a link that no terminal waits for, or not any more.
var ErrNoLink = errors.New("no terminal waits for this link")

// linkPath is where the service's page is.
const linkPath = "/passkeys/add/"

// Invitation is a terminal that waits for a passkey.
type Invitation struct {
	URL string // the owner opens it, once

	name, origin, token string
	user, challenge     []byte
	listener            net.Listener
	made                chan passkey.Key
}

// message is a question to the terminal, or its answer, a line of JSON each.
type message struct {
	Link    string          `json:"link,omitempty"`   // the hash of its token
	Answer  []byte          `json:"answer,omitempty"` // of the browser; none: what is it to make?
	MAC     []byte          `json:"mac,omitempty"`    // over Answer
	Name    string          `json:"name,omitempty"`   // of the passkey
	Options json.RawMessage `json:"options,omitempty"`
	Problem string          `json:"problem,omitempty"`
}

// Invite begins to wait for a passkey at an origin's page. One terminal of a home waits at a time.
func Invite(ctx context.Context, home, name, origin string) (*Invitation, error) {
	if _, err := passkey.RPID(origin); err != nil {
		return nil, err
	}
	path := filepath.Join(home, socketName)
	if conn, err := socket.DialOwn(ctx, path, home); err == nil {
		_ = conn.Close()
		return nil, errors.New("another passkey is being made: end that x402-wallet passkeys add first")
	}
	listener, err := socket.ListenOwn(ctx, path, home)
	if err != nil {
		return nil, fmt.Errorf("wait for the passkey: %w", err)
	}
	i := &Invitation{name: name, origin: origin, token: rand.Text(), user: make([]byte, 32),
		challenge: make([]byte, 32), listener: listener, made: make(chan passkey.Key, 1)}
	rand.Read(i.user)
	rand.Read(i.challenge)
	i.URL = origin + linkPath + i.token
	return i, nil
}

// Wait returns what was made behind the link. It ends with ctx, and after Life.
func (i *Invitation) Wait(ctx context.Context) (passkey.Key, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Life,
		fmt.Errorf("nobody made the passkey within %s", Life))
	defer cancel()
	defer func() { _ = i.listener.Close() }()
	go i.accept(ctx)
	select {
	case k := <-i.made:
		return k, nil
	case <-ctx.Done():
		return passkey.Key{}, context.Cause(ctx)
	}
}

// accept answers one question at a time.
func (i *Invitation) accept(ctx context.Context) {
	for {
		conn, err := i.listener.Accept()
		if err != nil {
			return
		}
		i.serve(ctx, conn)
	}
}

func (i *Invitation) serve(ctx context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(exchangeTime))
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	var q message
	if json.NewDecoder(io.LimitReader(conn, maxMessage)).Decode(&q) != nil {
		return
	}
	out, k := i.answer(q)
	_ = json.NewEncoder(conn).Encode(out)
	if k != nil {
		select {
		case i.made <- *k:
		default:
		}
	}
}

// answer says what is to be made, or checks what was.
func (i *Invitation) answer(q message) (out message, made *passkey.Key) {
	if q.Link != linkHash(i.token) {
		return message{Problem: ErrNoLink.Error()}, nil
	}
	options, err := creationOptions(i.origin, i.name, i.user, i.challenge)
	if err != nil {
		return message{Problem: err.Error()}, nil
	}
	out = message{Name: i.name, Options: options}
	if q.Answer == nil {
		return out, nil
	}
	if !hmac.Equal(q.MAC, linkMAC(i.token, q.Answer)) {
		return message{Problem: ErrNoLink.Error()}, nil
	}
	k, err := registered(i.origin, i.challenge, q.Answer)
	if err != nil {
		out.Problem = err.Error()
		return out, nil
	}
	return out, &k
}

func linkHash(token string) string {
	sum := sha256.Sum256([]byte("x402-wallet link " + token))
	return hex.EncodeToString(sum[:])
}

func linkMAC(token string, answer []byte) []byte {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write(answer)
	return mac.Sum(nil)
}

// Links are the links that terminals of a home wait for, as the service's pages ask for them.
type Links struct {
	Home string

	turn sync.Mutex // one question at a time: whoever guesses waits
}

// Options are the name of the passkey behind a link, and what the browser is to make it by. ErrNoLink: no
// terminal waits for it.
func (l *Links) Options(ctx context.Context, token string) (name string, options []byte, err error) {
	out, err := l.ask(ctx, message{Link: linkHash(token)})
	return out.Name, out.Options, err
}

// Made brings what a browser made to the terminal, which checks it.
func (l *Links) Made(ctx context.Context, token string, answer []byte) (name string, err error) {
	out, err := l.ask(ctx, message{Link: linkHash(token), Answer: answer, MAC: linkMAC(token, answer)})
	return out.Name, err
}

func (l *Links) ask(ctx context.Context, q message) (out message, err error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	conn, err := socket.DialOwn(ctx, filepath.Join(l.Home, socketName), l.Home)
	if err != nil {
		return out, ErrNoLink
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(exchangeTime))
	err = json.NewEncoder(conn).Encode(q)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(conn, maxMessage)).Decode(&out)
	}
	switch {
	case err != nil || out.Name == "":
		return out, ErrNoLink
	case out.Problem != "":
		return out, errors.New(out.Problem)
	}
	return out, nil
}
