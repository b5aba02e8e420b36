package notify

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"x402-wallet/internal/child"
)

// desktopTime is how long the desktop may take: a bus is on this machine.
const desktopTime = 5 * time.Second

const maxFromBus = 64 << 10

// What a desktop shows is shown by whoever has this name on the session's bus
// (https://specifications.freedesktop.org/notification-spec).
const (
	notifications     = "org.freedesktop.Notifications"
	notificationsPath = "/org/freedesktop/Notifications"
)

// Bus shows the notice on the desktop whose session bus is at an address, as D-Bus writes it. Only sockets of
// this machine are taken: other transports start programs.
type Bus struct{ Address string }

func (Bus) Name() (way, to string) { return "desktop", notifications }

func (b Bus) Tell(ctx context.Context, n Notice) error {
	ctx, cancel := context.WithTimeout(ctx, desktopTime)
	defer cancel()
	socket, err := socketOf(b.Address)
	if err != nil {
		return err
	}
	raw, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("the session's bus: %w", err)
	}
	// it is closed with ctx, whatever then waits for it
	some := bounded{Conn: raw, from: io.LimitReader(raw, maxFromBus)}
	conn, err := dbus.NewConn(some, dbus.WithContext(ctx))
	if err != nil {
		_ = raw.Close()
		return err
	}
	defer func() { _ = conn.Close() }()
	err = conn.Auth(nil)
	if err == nil {
		err = conn.Hello()
	}
	if err == nil {
		err = show(ctx, conn.Object(notifications, notificationsPath), n)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the desktop did not answer within %s", desktopTime)
	}
	return err
}

func show(ctx context.Context, desktop dbus.BusObject, n Notice) error {
	text := n.Text
	var abilities []string
	err := desktop.CallWithContext(ctx, notifications+".GetCapabilities", 0).Store(&abilities)
	if err != nil {
		return fmt.Errorf("nothing shows notifications: %w", err)
	}
	if slices.Contains(abilities, "body-markup") {
		text = html.EscapeString(text) // a host's name is no link
	}
	const replaces, asLongAsUsual = uint32(0), int32(-1)
	hints := map[string]dbus.Variant{"urgency": dbus.MakeVariant(byte(1))} // normal
	return desktop.CallWithContext(ctx, notifications+".Notify", 0, title, replaces, "", title, text,
		[]string{}, hints, asLongAsUsual).Err
}

// title is over every notice on a desktop.
const title = "x402-wallet"

// socketOf is the first socket that an address names: "unix:path=/run/user/1000/bus".
func socketOf(address string) (string, error) {
	for one := range strings.SplitSeq(address, ";") {
		keys, isSocket := strings.CutPrefix(one, "unix:")
		for pair := range strings.SplitSeq(keys, ",") {
			key, value, _ := strings.Cut(pair, "=")
			value, err := dbus.UnescapeBusAddressValue(value)
			switch {
			case !isSocket || err != nil || value == "":
			case key == "path":
				return value, nil
			case key == "abstract":
				return "@" + value, nil
			}
		}
	}
	return "", errors.New("DBUS_SESSION_BUS_ADDRESS names no socket of this machine")
}

// bounded is a connection of which so much is read and no more.
type bounded struct {
	net.Conn
	from io.Reader
}

func (b bounded) Read(p []byte) (int, error) { return b.from.Read(p) }

// Script shows the notice on a Mac's desktop.
type Script struct {
	Program string   // osascript
	Env     []string // all of its environment
}

func (Script) Name() (way, to string) { return "desktop", "osascript" }

// Tell implements Way. The text is an argument of the script and never part of it.
func (s Script) Tell(ctx context.Context, n Notice) error {
	//nolint:noctx // Run has a bound of its own, which ends all of it
	cmd := exec.Command(s.Program, "-e", "on run argv",
		"-e", "display notification (item 1 of argv) with title (item 2 of argv)",
		"-e", "end run", n.Text, title) // it begins with a word of ours
	cmd.Env = append([]string{}, s.Env...)
	return complained(child.Run(ctx, cmd, desktopTime))
}
