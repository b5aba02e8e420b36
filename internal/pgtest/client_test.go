package pgtest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// client speaks PostgreSQL's extended protocol, as a driver does.
type client struct {
	net.Conn
	in          *bufio.Reader
	pid, secret uint32
}

type code string

func (c code) Error() string { return string(c) }

func dial(t *testing.T, to string) net.Conn {
	u := must.Get(url.Parse(to))(t)
	network, address := "tcp", u.Host
	if u.Host == "" {
		network = "unix"
		address = filepath.Join(u.Query().Get("host"), ".s.PGSQL."+u.Query().Get("port"))
	}
	conn := must.Get(net.Dial(network, address))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// connect gives a client whose connection is ready; for an error instead, tryConnect.
func connect(t *testing.T, to string) *client { return must.Get(tryConnect(t, to))(t) }

func tryConnect(t *testing.T, to string) (*client, error) {
	conn := dial(t, to)
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	c := &client{Conn: conn, in: bufio.NewReader(conn)}
	u := must.Get(url.Parse(to))(t)
	first := binary.BigEndian.AppendUint32(nil, 3<<16)
	for _, word := range []string{"user", superuser, "database", filepath.Base(u.Path), ""} {
		first = append(append(first, word...), 0)
	}
	_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(first)+4)), first...))
	if err != nil {
		return nil, err
	}
	_, err = c.answer()
	return c, err
}

func (c *client) send(messages ...[]byte) error {
	var all []byte
	for _, m := range messages {
		all = append(all, m[0])
		all = binary.BigEndian.AppendUint32(all, uint32(len(m)+3))
		all = append(all, m[1:]...)
	}
	_, err := c.Write(all)
	return err
}

func parse(name, text string) []byte { return []byte("P" + name + "\x00" + text + "\x00\x00\x00") }
func bind(name string) []byte        { return []byte("B\x00" + name + "\x00\x00\x00\x00\x00\x00\x00") }

var (
	execute = []byte("E\x00\x00\x00\x00\x00")
	synced  = []byte("S")
)

// prepare and call are one round trip each.
func (c *client) prepare(name, text string) error {
	err := c.send(parse(name, text), synced)
	if err != nil {
		return err
	}
	_, err = c.answer()
	return err
}

func (c *client) call(name string) (string, error) {
	err := c.send(bind(name), execute, synced)
	if err != nil {
		return "", err
	}
	return c.answer()
}

// query is the simple protocol's.
func (c *client) query(text string) (string, error) {
	err := c.send([]byte("Q" + text + "\x00"))
	if err != nil {
		return "", err
	}
	return c.answer()
}

// answer reads up to ReadyForQuery, and gives the last row's one column.
func (c *client) answer() (value string, err error) {
	for {
		m, broken := readMessage(c.in)
		if broken != nil {
			return "", errors.Join(err, broken)
		}
		body := m.raw[5:]
		switch m.kind {
		case 'K':
			c.pid, c.secret = binary.BigEndian.Uint32(body), binary.BigEndian.Uint32(body[4:])
		case 'D':
			value = string(body[6:])
		case 'E':
			err = stateOf(body)
		case 'Z':
			return value, err
		}
	}
}

func stateOf(fields []byte) code {
	for len(fields) > 1 {
		var end int
		for end = 1; fields[end] != 0; end++ {
			continue
		}
		if fields[0] == 'C' {
			return code(fields[1:end])
		}
		fields = fields[end+1:]
	}
	return "?"
}
