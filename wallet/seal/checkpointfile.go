package seal

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"x402-wallet/internal/ownfile"
)

// checkpointFile is the checkpoint's file in the home: two slots of one line each, of
// which the older is overwritten, so that one is whole whenever the machine stops. It is not forced
// to the disk: after a power cut it may be older than the ledger, which is no harm, and forcing it
// would cost each payment as much as all of its records.
const checkpointFile = "ledger.mark"

// slotSize is a line's length, with its padding and its end. A checkpoint has about 250 bytes.
const slotSize = 512

// writeSlot writes a line over the older one; a file that is not as it should be is replaced.
func (g *Guard) writeSlot(line []byte) error {
	path := filepath.Join(g.Home, checkpointFile)
	lines, err := readLines(path)
	if err != nil || len(lines) != 2 {
		return g.replace(line)
	}
	older := int64(0)
	if g.ownLines.read(lines[1]).Seq < g.ownLines.read(lines[0]).Seq {
		older = 1
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(line, older*slotSize)
	return errors.Join(err, file.Close())
}

// replace makes a line the only checkpoint, whatever was there: the owner looked and accepted it.
func (g *Guard) replace(line []byte) error {
	return ownfile.Write(filepath.Join(g.Home, checkpointFile), append(line, line...))
}

func readLines(path string) ([][]byte, error) {
	text, _, err := ownfile.Read(path, 2*slotSize)
	return slices.Collect(slices.Chunk(text, slotSize)), err
}

// readCheckpoint is what a line says; of one that was being written when the machine stopped, the zero
// checkpoint.
func readCheckpoint(line []byte) (m checkpoint) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if d.Decode(&m) != nil || m.Format != checkpointFormat || len(line) < slotSize {
		return checkpoint{}
	}
	return m
}

// newest is the newest checkpoint that this wallet made.
func (g *Guard) newest(ctx context.Context) (newest checkpoint, err error) {
	lines, err := readLines(filepath.Join(g.Home, checkpointFile))
	if errors.Is(err, fs.ErrNotExist) && g.Store.Shared() {
		return newest, nil // a new replica's, before its first payment
	}
	if errors.Is(err, fs.ErrNotExist) {
		return newest, rolledBack("its checkpoint (%s) is missing", checkpointFile)
	}
	if err != nil {
		return newest, unreadable(err)
	}
	for _, line := range lines {
		m, err := g.ownCheckpoint(ctx, line)
		if err != nil {
			return newest, err
		}
		if m.Seq > newest.Seq {
			newest = m
		}
	}
	if newest.Seq == 0 {
		return newest, rolledBack("its checkpoint (%s) was not made by this wallet for this ledger "+
			"in this place", checkpointFile)
	}
	return newest, nil
}

// ownCheckpoint is what a line says, if this wallet made it; else the zero checkpoint.
func (g *Guard) ownCheckpoint(ctx context.Context, line []byte) (checkpoint, error) {
	if known, isOwn := g.ownLines.find(line); isOwn {
		return known, nil
	}
	m := readCheckpoint(line)
	seal, err := g.sealOfCheckpoint(ctx, m)
	if err != nil || !hmac.Equal([]byte(seal), []byte(m.Seal)) {
		return checkpoint{}, err
	}
	g.ownLines.keep(line, m)
	return m, nil
}

// ownLines are the newest lines that were found to be this wallet's, or that it wrote: a payment reads the
// file several times, and reading and checking what it says takes longer than all else about that. That the
// home still is the one they were made in the seal over the rules says, each time (VerifySeals).
type ownLines struct {
	mu    sync.Mutex
	lines [2]ownLine
}

type ownLine struct {
	text []byte
	says checkpoint
}

func (o *ownLines) find(line []byte) (says checkpoint, isOwn bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, own := range o.lines {
		if bytes.Equal(own.text, line) {
			return own.says, true
		}
	}
	return checkpoint{}, false
}

// keep forgets the older one of the two.
func (o *ownLines) keep(line []byte, says checkpoint) {
	o.mu.Lock()
	defer o.mu.Unlock()
	older := &o.lines[0]
	if o.lines[1].says.Seq < older.says.Seq {
		older = &o.lines[1]
	}
	*older = ownLine{bytes.Clone(line), says}
}

// read is what a line says, whoever made it.
func (o *ownLines) read(line []byte) checkpoint {
	if known, isOwn := o.find(line); isOwn {
		return known
	}
	return readCheckpoint(line)
}
