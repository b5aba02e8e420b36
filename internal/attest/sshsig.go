package attest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
)

// Namespace is what a release's signature is made for (ssh-keygen -n). A signature that the same key
// made for anything else, a commit or a login, is none.
const Namespace = "x402-wallet-release"

const (
	sshEd25519 = "ssh-ed25519"
	sshMagic   = "SSHSIG"
	beginning  = "-----BEGIN SSH SIGNATURE-----\n"
	end        = "-----END SSH SIGNATURE-----\n"
)

// Key is the public key of whoever makes releases, as OpenSSH writes it. Only Ed25519 is taken.
type Key struct{ blob []byte }

// ParseKey reads one line as in an OpenSSH .pub file, or its second word alone, as it is compiled in.
func ParseKey(text string) (Key, error) {
	words := strings.Fields(text)
	if len(words) >= 2 && words[0] == sshEd25519 {
		words = words[1:2]
	}
	if len(words) != 1 || strings.Count(strings.TrimSpace(text), "\n") > 0 {
		return Key{}, errKey
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(words[0])
	if err != nil {
		return Key{}, errKey
	}
	k := Key{blob: blob}
	if k.ed25519() == nil {
		return Key{}, errKey
	}
	return k, nil
}

var errKey = errors.New("it is not one Ed25519 key as OpenSSH writes it: ssh-ed25519 AAAAC3Nza…")

// ed25519 is the key itself; nil if the blob is anything else.
func (k Key) ed25519() ed25519.PublicKey {
	in := wire{rest: k.blob}
	kind, key := in.text(), in.bytes()
	if in.bad || len(in.rest) > 0 || kind != sshEd25519 || len(key) != ed25519.PublicKeySize {
		return nil
	}
	return key
}

// String is the key as one word, the second of a .pub file.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k.blob) }

// Fingerprint is what ssh-keygen -l shows.
func (k Key) Fingerprint() string {
	sum := sha256.Sum256(k.blob)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// What may be wrong with a signature.
var (
	errArmour = errors.New("it is not one SSH signature, and nothing else")
	errOther  = errors.New("it was made with another key, for another purpose, or with another hash")
	errForged = errors.New("it does not fit what it stands beside")
)

// Verify checks a signature that ssh-keygen -Y sign made over message, in the form of OpenSSH's
// PROTOCOL.sshsig: this key, this purpose, SHA-512.
func (k Key) Verify(message, signature []byte) error {
	body, begins := strings.CutPrefix(string(signature), beginning)
	body, ends := strings.CutSuffix(body, end)
	if !begins || !ends || !strings.HasSuffix(body, "\n") {
		return errArmour
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(strings.ReplaceAll(body, "\n", ""))
	if err != nil || strings.Contains(body, "\r") { // which base64 skips
		return errArmour
	}
	blob, is := bytes.CutPrefix(blob, []byte(sshMagic))
	in := wire{rest: blob}
	version, key, namespace, reserved, hash := in.uint32(), in.bytes(), in.text(), in.text(), in.text()
	inner := wire{rest: in.bytes()}
	kind, raw := inner.text(), inner.bytes()
	switch {
	case !is || in.bad || inner.bad || len(in.rest)+len(inner.rest) > 0 || version != 1 || reserved != "":
		return errArmour
	case !bytes.Equal(key, k.blob) || namespace != Namespace || hash != "sha512" || kind != sshEd25519:
		return errOther
	}
	sum := sha512.Sum512(message)
	signed := []byte(sshMagic)
	for _, part := range []string{namespace, reserved, hash, string(sum[:])} {
		signed = append(binary.BigEndian.AppendUint32(signed, uint32(len(part))), part...)
	}
	if len(raw) != ed25519.SignatureSize || !ed25519.Verify(k.ed25519(), signed, raw) {
		return errForged
	}
	return nil
}

// wire reads SSH's encoding (RFC 4251 §5). After what is too short everything is empty and bad.
type wire struct {
	rest []byte
	bad  bool
}

func (w *wire) take(n uint32) []byte {
	if w.bad || uint64(n) > uint64(len(w.rest)) {
		w.rest, w.bad = nil, true
		return nil
	}
	part := w.rest[:n]
	w.rest = w.rest[n:]
	return part
}

func (w *wire) uint32() uint32 {
	if b := w.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (w *wire) bytes() []byte { return w.take(w.uint32()) }

func (w *wire) text() string { return string(w.bytes()) }
