package terminal

import (
	"os"

	"golang.org/x/sys/windows"
)

func Open() (*Terminal, error) {
	in, err := os.OpenFile("CONIN$", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile("CONOUT$", os.O_RDWR, 0)
	if err != nil {
		_ = in.Close()
		return nil, err
	}
	return &Terminal{in: in, Out: out}, nil
}

// hide turns the echo off; show puts the console back as it was.
func (t *Terminal) hide() (show func(), err error) {
	console := windows.Handle(t.in.Fd())
	var before uint32
	if err := windows.GetConsoleMode(console, &before); err != nil {
		return nil, err
	}
	hidden := before&^windows.ENABLE_ECHO_INPUT | windows.ENABLE_LINE_INPUT | windows.ENABLE_PROCESSED_INPUT
	return func() { _ = windows.SetConsoleMode(console, before) }, windows.SetConsoleMode(console, hidden)
}
