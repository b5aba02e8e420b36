//go:build linux || darwin

package relay

import (
	"errors"
	"net"
	"os"

	"x402-wallet/internal/socket"

	"golang.org/x/sys/unix"
)

// sendFiles writes data to a Unix socket, and hands the files over with its first byte. They stay the
// caller's, too.
func sendFiles(conn net.Conn, data []byte, files ...*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	to, isUnix := conn.(*net.UnixConn)
	if !isUnix {
		return socket.ErrUnsupported
	}
	n, _, err := to.WriteMsgUnix(data, unix.UnixRights(fds...), nil)
	if err == nil && n < len(data) { // the files are there by now
		_, err = to.Write(data[n:])
	}
	return err
}

// readFiles reads from a Unix socket into p, and takes the files that came with its first byte: at most
// maxFiles, else all of them are closed and it is an error. What other reads meet is closed by the system.
func readFiles(conn net.Conn, p []byte) (n int, files []*os.File, err error) {
	from, isUnix := conn.(interface {
		ReadMsgUnix(p, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error)
	})
	if !isUnix {
		return 0, nil, socket.ErrUnsupported
	}
	rights := make([]byte, unix.CmsgSpace(4*maxFiles)) // an int each; what does not fit the system closes
	n, rightsN, flags, _, err := from.ReadMsgUnix(p, rights)
	if err != nil {
		return n, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rightsN])
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	if err == nil && (flags&unix.MSG_CTRUNC != 0 || len(files) > maxFiles) {
		err = errors.New("more files came than are taken")
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return n, nil, err
	}
	return n, files, nil
}
