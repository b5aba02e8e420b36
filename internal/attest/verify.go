package attest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Outcome is what is known of a program.
type Outcome string

// The outcomes. Only Released is good.
const (
	Released      Outcome = "released"       // the key signed its checksum
	Unlisted      Outcome = "unlisted"       // the release is signed, and this program is not in it
	Unsigned      Outcome = "unsigned"       // there is no signature
	BadSignature  Outcome = "bad_signature"  // not by this key over these checksums
	BadSums       Outcome = "bad_checksums"  // signed, but not in the form of a release
	BadProvenance Outcome = "bad_provenance" // not the signed one, or of other files or another commit
)

// Verdict is what Verify found.
type Verdict struct {
	OK         bool    `json:"ok"`
	Outcome    Outcome `json:"outcome"`
	Message    string  `json:"message"`
	SHA256     string  `json:"sha256"`               // of the program
	Name       string  `json:"name,omitempty"`       // of it in the release
	Key        string  `json:"key"`                  // its fingerprint
	Provenance string  `json:"provenance,omitempty"` // "ok", or "absent"
	Commit     string  `json:"commit,omitempty"`     // that provenance says it was made from
}

// Program is what is looked for in a release.
type Program struct {
	Path   string
	Commit string // that it says it was made from; "" is not compared
}

// Verify says whether a program is one of the release in a directory, or beside the SHA256SUMS that
// where names. It reads three files there. The error is one of reading the program or SHA256SUMS.
func Verify(where string, key Key, p Program) (Verdict, error) {
	v := Verdict{Key: key.Fingerprint()}
	program, err := os.Open(p.Path)
	if err != nil {
		return v, err
	}
	defer program.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, program); err != nil {
		return v, err
	}
	v.SHA256 = hex.EncodeToString(hash.Sum(nil))

	dir := where
	if info, err := os.Stat(where); err == nil && !info.IsDir() {
		dir = filepath.Dir(where)
		if filepath.Base(where) != SumsName {
			return v, fmt.Errorf("%s is not a directory and not a file %s", where, SumsName)
		}
	}
	text, err := read(filepath.Join(dir, SumsName))
	if err != nil {
		return v, err
	}
	return v.judge(dir, text, key, p), nil
}

// judge takes the steps in the order of trust.
func (v Verdict) judge(dir string, text []byte, key Key, p Program) Verdict {
	signature, err := read(filepath.Join(dir, SignatureName))
	if errors.Is(err, fs.ErrNotExist) {
		return v.because(Unsigned, "there is no %s beside the checksums", SignatureName)
	}
	if err == nil {
		err = key.Verify(text, signature)
	}
	if err != nil {
		return v.because(BadSignature, "%s does not count: %v", SignatureName, err)
	}
	sums, err := readSums(text)
	if err != nil {
		return v.because(BadSums, "%s is signed, and %v", SumsName, err)
	}
	for _, name := range sums.names() {
		if sums[name] == v.SHA256 && strings.TrimSuffix(path.Base(name), ".exe") == "x402-wallet" {
			v.Name = name
		}
	}
	if v.Name == "" {
		return v.because(Unlisted, "the release is signed, and this program is not in it: another release, "+
			"one of your own making, or one that was changed")
	}
	statement, err := read(filepath.Join(dir, ProvenanceName))
	if errors.Is(err, fs.ErrNotExist) {
		v.Provenance = "absent"
		return v.because(Released, "the key signed the checksum of this program; %s is not there",
			ProvenanceName)
	}
	if err == nil {
		v.Commit, err = commitOf(statement, sums)
	}
	if err != nil {
		return v.because(BadProvenance, "%s does not count: %v", ProvenanceName, err)
	}
	if p.Commit != "" && p.Commit != v.Commit {
		return v.because(BadProvenance, "%s is of the commit %s, and this program says that it was made "+
			"from %s", ProvenanceName, v.Commit, p.Commit)
	}
	v.Provenance = "ok"
	return v.because(Released, "the key signed the checksum of this program and where it comes from")
}

func (v Verdict) because(o Outcome, format string, args ...any) Verdict {
	v.Outcome, v.OK, v.Message = o, o == Released, fmt.Sprintf(format, args...)
	return v
}

// commitOf is the commit that a release says it was made from. The statement must be the one that its
// checksums cover, about all the other files they cover.
func commitOf(statement []byte, sums Sums) (string, error) {
	sum := sha256.Sum256(statement)
	if sums[ProvenanceName] != hex.EncodeToString(sum[:]) {
		return "", errors.New("it is not the one whose checksum was signed")
	}
	others := maps.Clone(sums)
	delete(others, ProvenanceName)
	s, err := readStatement(statement, others)
	return s.commit(), err
}

// read reads a regular file that is no larger than those of a release are.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > MaxSize {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, MaxSize)
	}
	return os.ReadFile(path)
}
