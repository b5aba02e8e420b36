package history

// Waits hears of what is new and waits for the owner, once it is on disk and only from the process that
// wrote it. It must return at once: whoever asked waits for it.
type Waits interface {
	// Asked is called for a question that was opened; whoever asks it again finds it, and nobody is called.
	Asked(a Approval)
	// Frozen is called where payments were stopped that were not stopped before.
	Frozen(f Freeze)
}

func (s *Store) asked(a Approval) {
	if s.waits != nil {
		s.waits.Asked(a)
	}
}

func (s *Store) frozen(f Freeze) {
	if s.waits != nil {
		s.waits.Frozen(f)
	}
}
