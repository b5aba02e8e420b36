package notify

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"x402-wallet/internal/must"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/require"
)

// bus is a session's bus with a desktop on it: it lets its user in and answers as the specifications say.
type bus struct {
	address   string
	abilities []string
	does      func(method string) (answers bool) // nil: it answers

	mu    sync.Mutex
	shown [][]any // the arguments of each Notify
}

func startBus(t *testing.T, b *bus) *bus {
	socket := filepath.Join(t.TempDir(), "bus")
	l := must.Get(net.Listen("unix", socket))(t)
	b.address = "unix:path=" + socket + ",guid=00000000000000000000000000000000"
	var serving sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(t.Context(), func() { _ = conn.Close() })()
				b.serve(conn)
			})
		}
	})
	return b
}

func (b *bus) answers(method string) bool { return b.does == nil || b.does(method) }

func (b *bus) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	_, _ = in.ReadByte() // the credentials' zero
	for {
		line, err := in.ReadString('\n')
		word := strings.Fields(line)
		switch {
		case err != nil || len(word) == 0 || !b.answers(word[0]):
			_, _ = io.Copy(io.Discard, in)
			return
		case word[0] == "BEGIN":
			b.messages(in, conn)
			return
		case word[0] == "AUTH" && len(word) == 1:
			_, _ = io.WriteString(conn, "REJECTED EXTERNAL\r\n")
		case word[0] == "AUTH":
			_, _ = io.WriteString(conn, "DATA\r\n")
		default:
			_, _ = io.WriteString(conn, "OK 00000000000000000000000000000000\r\n")
		}
	}
}

func (b *bus) messages(in io.Reader, out io.Writer) {
	for {
		m, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		method, _ := m.Headers[dbus.FieldMember].Value().(string)
		if !b.answers(method) {
			continue
		}
		var body []any
		switch method {
		case "Hello":
			body = []any{":1.1"}
		case "GetCapabilities":
			body = []any{b.abilities}
		case "Notify":
			b.mu.Lock()
			b.shown = append(b.shown, m.Body)
			b.mu.Unlock()
			body = []any{uint32(1)}
		}
		reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(m.Serial()),
			dbus.FieldSender:      dbus.MakeVariant("org.freedesktop.DBus"),
			dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf(body...))}, Body: body}
		if method == "Notify" && len(b.abilities) == 0 { // nobody is there
			reply.Type = dbus.TypeError
			reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.ServiceUnknown")
		}
		if reply.EncodeTo(out, binary.LittleEndian) != nil {
			return
		}
	}
}

// A desktop shows the text, and no markup of a stranger's.
func TestADesktopIsTold(t *testing.T) {
	a := question(1)
	a.Detail.Why = `the seller writes: "<a href='https://evil.example'>& free"`
	n := notice(a, "")
	for ability, written := range map[string]string{
		"body":        `<a href='https://evil.example'>& free`,
		"body-markup": `&lt;a href=&#39;https://evil.example&#39;&gt;&amp; free`,
	} {
		b := startBus(t, &bus{abilities: []string{"actions", ability}})
		require.NoError(t, Bus{Address: b.address}.Tell(t.Context(), n))
		require.Len(t, b.shown, 1)
		require.Equal(t, []any{title, uint32(0), "", title}, b.shown[0][:4])
		require.Contains(t, b.shown[0][4], written)
		require.Contains(t, b.shown[0][4], "x402-wallet approve apr_1")
		require.Empty(t, b.shown[0][5], "no buttons")
	}
}

// A desktop that is not there, or says nothing, is an error in time.
func TestNoDesktop(t *testing.T) {
	empty := startBus(t, &bus{})
	require.ErrorContains(t, Bus{Address: empty.address}.Tell(t.Context(), test()), "ServiceUnknown")
	gone := filepath.Join(t.TempDir(), "bus")
	require.ErrorContains(t, Bus{Address: "unix:path=" + gone}.Tell(t.Context(), test()), "the session's bus")
	for _, silent := range []string{"AUTH", "BEGIN", "Hello", "GetCapabilities", "Notify"} {
		t.Run(silent, func(t *testing.T) {
			b := startBus(t, &bus{abilities: []string{"body"},
				does: func(method string) bool { return method != silent }})
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			require.Error(t, Bus{Address: b.address}.Tell(ctx, test()))
			require.Error(t, ctx.Err(), "it waits that long")
		})
	}
}

func TestAddressesOfABus(t *testing.T) {
	for address, socket := range map[string]string{
		"unix:path=/run/user/1/bus":                       "/run/user/1/bus",
		"unix:guid=1,path=/a%20b":                         "/a b",
		"tcp:host=x;unix:abstract=/tmp/dbus-1":            "@/tmp/dbus-1",
		"unixexec:path=/bin/sh;unix:path=/b;unix:path=/c": "/b",
		"":                          "",
		"unixexec:path=/bin/sh":     "",
		"tcp:host=localhost,port=1": "",
		"nonce-tcp:path=/x":         "",
		"unix:tmpdir=/tmp":          "",
		"autolaunch:":               "",
		"unix:path=%zz":             "",
		"unix:path=":                "",
	} {
		got, err := socketOf(address)
		require.Equal(t, socket, got, address)
		require.Equal(t, socket == "", err != nil, address)
	}
}
