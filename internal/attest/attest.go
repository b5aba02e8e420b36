// Package attest is what a release says of itself, and whether that is to be believed: the checksums
// of its files, the signature over them, and the provenance that they cover. The release writes with
// it, `version --verify` reads with it.
//
// What must stay true: nothing is believed that the key does not cover. So the signature is checked
// before a byte of what it signs is read, and everything else is found by its digest in there; what is
// not in the one form that a release has is refused. Nobody is asked: there is no network in it.
//
// The parts: sshsig.go (the key and the signature), sums.go (SHA256SUMS), provenance.go (SLSA), and
// verify.go, which joins them.
package attest

// The files of a release that say what the others are.
const (
	SumsName       = "SHA256SUMS"
	SignatureName  = SumsName + ".sig"
	ProvenanceName = "provenance.json"
)

// MaxSize bounds each of them, in bytes: a release has some thirty files.
const MaxSize = 1 << 20
