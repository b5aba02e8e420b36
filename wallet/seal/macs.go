package seal

import (
	"bytes"
	"sync"
)

// macs are MACs that were made a short while ago, by what they are over: one payment after the other reads
// the same parts of the memory of what was signed, and asking the key takes longer than all else about
// that. They are no secret, since the ledger holds them.
type macs struct {
	mu    sync.Mutex
	known map[string][]byte
}

// maxMACs bounds them. One is over about a kilobyte at most.
const maxMACs = 128

// before is mac for what is not known.
func (m *macs) before(mac func(data []byte) ([]byte, error)) func(data []byte) ([]byte, error) {
	return func(data []byte) ([]byte, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if known := m.known[string(data)]; known != nil {
			return bytes.Clone(known), nil
		}
		made, err := mac(data)
		if err != nil {
			return nil, err
		}
		if m.known == nil || len(m.known) >= maxMACs {
			m.known = map[string][]byte{}
		}
		m.known[string(data)] = bytes.Clone(made)
		return made, nil
	}
}
