// Package piece reads the pieces of binary messages.
package piece

// Reader reads the pieces of a message. Once it met the end too early, Truncated is set and every answer is
// zero.
type Reader struct {
	Rest      []byte
	Truncated bool
}

func (r *Reader) Take(n int) []byte {
	if n > len(r.Rest) {
		r.Rest, r.Truncated = nil, true
		return make([]byte, n) // at most 65535: a count; the other sizes are ours
	}
	out := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return out
}

func (r *Reader) Byte() byte { return r.Take(1)[0] }
