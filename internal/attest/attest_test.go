package attest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return text
}

func goldenKey(t testing.TB, name string) Key {
	t.Helper()
	key, err := ParseKey(string(golden(t, name)))
	require.NoError(t, err)
	return key
}

// What the real ssh-keygen signed is good, for what it signed it for and with nothing else.
func TestSignaturesOfSSHKeygen(t *testing.T) {
	key, sums := goldenKey(t, "release.pub"), golden(t, "SHA256SUMS")
	require.NoError(t, key.Verify(sums, golden(t, "SHA256SUMS.sig")))
	require.NoError(t, goldenKey(t, "other.pub").Verify(sums, golden(t, "other-key.sig")))
	for _, name := range []string{"other-key.sig", "other-purpose.sig", "sha256.sig", "ecdsa.sig"} {
		require.ErrorIs(t, key.Verify(sums, golden(t, name)), errOther, name)
	}
	require.ErrorIs(t, key.Verify(append(sums, '\n'), golden(t, "SHA256SUMS.sig")), errForged)
	require.ErrorIs(t, key.Verify(nil, golden(t, "SHA256SUMS.sig")), errForged)
}

// Not one bit of signature, checksums or key may be another.
func TestEveryBit(t *testing.T) {
	key, sums, signature := goldenKey(t, "release.pub"), golden(t, "SHA256SUMS"), golden(t, "SHA256SUMS.sig")
	block, _ := pem.Decode(signature) // the form is near enough
	require.NotNil(t, block)
	for i := range len(block.Bytes) * 8 {
		flipped := bytes.Clone(block.Bytes)
		flipped[i/8] ^= 1 << (i % 8)
		require.Error(t, key.Verify(sums, armoured(flipped)), i)
	}
	require.NoError(t, key.Verify(sums, armoured(block.Bytes)))
	for i := range len(sums) * 8 {
		sums[i/8] ^= 1 << (i % 8)
		require.Error(t, key.Verify(sums, signature), i)
		sums[i/8] ^= 1 << (i % 8)
	}
	for i := range len(key.blob) * 8 {
		other := Key{blob: bytes.Clone(key.blob)}
		other.blob[i/8] ^= 1 << (i % 8)
		require.Error(t, other.Verify(sums, signature), i)
	}
}

func armoured(blob []byte) []byte {
	var b strings.Builder
	b.WriteString(beginning)
	text := base64.StdEncoding.EncodeToString(blob)
	for len(text) > 70 {
		b.WriteString(text[:70] + "\n")
		text = text[70:]
	}
	b.WriteString(text + "\n" + end)
	return []byte(b.String())
}

// A signature in any other form than the tool's.
func TestForms(t *testing.T) {
	key, sums := goldenKey(t, "release.pub"), golden(t, "SHA256SUMS")
	good := string(golden(t, "SHA256SUMS.sig"))
	block, _ := pem.Decode([]byte(good))
	more := func(b ...byte) string { return string(armoured(append(bytes.Clone(block.Bytes), b...))) }
	for name, text := range map[string]string{
		"nothing": "", "CRLF": strings.ReplaceAll(good, "\n", "\r\n"), "behind it": good + "x",
		"a line behind it": good + "\n", "before it": "\n" + good, "twice": good + good,
		"no last line end": strings.TrimSuffix(good, "\n"), "no end": strings.TrimSuffix(good, end),
		"another label":     strings.ReplaceAll(good, "SSH SIGNATURE", "SIGNATURE"),
		"a byte behind":     more(0),
		"cut":               string(armoured(block.Bytes[:len(block.Bytes)-1])),
		"no base64":         beginning + "!\n" + end,
		"empty":             beginning + "\n" + end,
		"a carriage return": strings.Replace(good, "AAAA", "AA\rAA", 1),
		"a long string":     string(armoured([]byte("SSHSIG\x00\x00\x00\x01\xff\xff\xff\xff"))),
		"only a magic":      string(armoured([]byte("SSHSIG"))),
	} {
		require.ErrorIs(t, key.Verify(sums, []byte(text)), errArmour, name)
	}
}

func TestKeys(t *testing.T) {
	line := strings.TrimSpace(string(golden(t, "release.pub")))
	word := strings.Fields(line)[1]
	for _, text := range []string{line, line + "\n", word, "ssh-ed25519 " + word, " " + word + "\n"} {
		key, err := ParseKey(text)
		require.NoError(t, err)
		require.Equal(t, word, key.String())
		require.Regexp(t, `^SHA256:[A-Za-z0-9+/]{43}$`, key.Fingerprint())
	}
	for _, text := range []string{"", "ssh-ed25519", "ssh-rsa " + word, line + "\n" + line, word + " " + word,
		string(golden(t, "ecdsa.pub")), word[:len(word)-4], word + "AAAA", "ssh-ed25519 AAAA",
		"-----BEGIN OPENSSH PRIVATE KEY-----", "x402-wallet " + line} {
		_, err := ParseKey(text)
		require.Error(t, err, text)
	}
}

// maker is a release's maker, who signs whatever is asked: an SSHSIG written by hand.
type maker ed25519.PrivateKey

func newMaker() maker { return maker(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))) }

func strs(parts ...string) (out []byte) {
	for _, p := range parts {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(p))), p...)
	}
	return out
}

func (m maker) key(t testing.TB) Key {
	blob := strs("ssh-ed25519", string(ed25519.PrivateKey(m).Public().(ed25519.PublicKey)))
	key, err := ParseKey(base64.StdEncoding.EncodeToString(blob))
	require.NoError(t, err)
	return key
}

func (m maker) sign(t testing.TB, message []byte) []byte {
	sum := sha512.Sum512(message)
	raw := ed25519.Sign(ed25519.PrivateKey(m),
		append([]byte("SSHSIG"), strs(Namespace, "", "sha512", string(sum[:]))...))
	return armoured(append([]byte("SSHSIG\x00\x00\x00\x01"), strs(string(m.key(t).blob), Namespace, "",
		"sha512", string(strs("ssh-ed25519", string(raw))))...))
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

const (
	theCommit = "0123456789abcdef0123456789abcdef01234567"
	theName   = "x402-wallet-1.2.3-linux-amd64/x402-wallet"
)

func theFiles() Sums {
	return Sums{"x402-wallet-1.2.3-linux-amd64.tar.gz": sumOf("archive"), theName: sumOf("program"),
		"x402-wallet-1.2.3-windows-amd64/x402-wallet.exe": sumOf("program.exe"), "server.json": sumOf("{}")}
}

// release makes one in a directory; change may do anything to it before it is signed.
func release(t *testing.T, change func(s *Statement, sums Sums)) (dir string, p Program) {
	t.Helper()
	dir = t.TempDir()
	sums := theFiles()
	s := NewStatement(sums, theCommit, map[string]string{"version": "1.2.3"}, nil)
	if change != nil {
		change(&s, sums)
	}
	statement, err := json.Marshal(s)
	require.NoError(t, err)
	if sums[ProvenanceName] == "" {
		sums[ProvenanceName] = sumOf(string(statement))
	}
	put(t, dir, ProvenanceName, string(statement))
	put(t, dir, SumsName, string(sums.Text()))
	put(t, dir, SignatureName, string(newMaker().sign(t, sums.Text())))
	put(t, dir, "program", "program")
	return dir, Program{Path: filepath.Join(dir, "program"), Commit: theCommit}
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

func TestReleased(t *testing.T) {
	dir, p := release(t, nil)
	for _, where := range []string{dir, filepath.Join(dir, SumsName)} {
		v, err := Verify(where, newMaker().key(t), p)
		require.NoError(t, err)
		require.Equal(t, Verdict{OK: true, Outcome: Released, SHA256: sumOf("program"), Name: theName,
			Key: newMaker().key(t).Fingerprint(), Provenance: "ok", Commit: theCommit, Message: v.Message}, v)
	}
	put(t, dir, "program", "program.exe")
	p.Commit = "" // of a build without git
	v, err := Verify(dir, newMaker().key(t), p)
	require.NoError(t, err)
	require.True(t, v.OK)
	require.NoError(t, os.Remove(filepath.Join(dir, ProvenanceName)))
	v, err = Verify(dir, newMaker().key(t), p)
	require.NoError(t, err)
	require.True(t, v.OK)
	require.Equal(t, "absent", v.Provenance)
	require.Empty(t, v.Commit)
}

// The golden release, as a whole.
func TestAReleaseSignedBySSHKeygen(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "program", "program\n")
	v, err := Verify("testdata", goldenKey(t, "release.pub"), Program{Path: filepath.Join(dir, "program")})
	require.NoError(t, err)
	require.Equal(t, Released, v.Outcome, v.Message)
	v, err = Verify("testdata", goldenKey(t, "other.pub"), Program{Path: filepath.Join(dir, "program")})
	require.NoError(t, err)
	require.Equal(t, BadSignature, v.Outcome)
}

// Whoever changes a release after it was signed.
func TestChangedReleases(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, dir string)
		want   Outcome
	}{
		"no signature": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, SignatureName)))
		}, Unsigned},
		"a checksum of the attacker's": {func(t *testing.T, dir string) {
			sums := theFiles()
			sums[theName] = sumOf("evil")
			put(t, dir, SumsName, string(sums.Text()))
			put(t, dir, "program", "evil")
		}, BadSignature},
		"a line more": {func(t *testing.T, dir string) {
			text, err := os.ReadFile(filepath.Join(dir, SumsName))
			require.NoError(t, err)
			put(t, dir, SumsName, string(text)+sumOf("evil")+"  z/x402-wallet\n")
		}, BadSignature},
		"the signature of another key": {func(t *testing.T, dir string) {
			text, err := os.ReadFile(filepath.Join(dir, SumsName))
			require.NoError(t, err)
			evil := maker(ed25519.NewKeyFromSeed(make([]byte, 32)))
			put(t, dir, SignatureName, string(evil.sign(t, text)))
		}, BadSignature},
		"a signature that is a directory": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, SignatureName)))
			require.NoError(t, os.Mkdir(filepath.Join(dir, SignatureName), 0o700))
		}, BadSignature},
		"an endless signature": {func(t *testing.T, dir string) {
			put(t, dir, SignatureName, strings.Repeat("x", MaxSize+1))
		}, BadSignature},
		"another program": {func(t *testing.T, dir string) { put(t, dir, "program", "mine") }, Unlisted},
		"the archive itself": {func(t *testing.T, dir string) {
			put(t, dir, "program", "archive") // listed, and no program
		}, Unlisted},
		"provenance that was not signed": {func(t *testing.T, dir string) {
			text, err := os.ReadFile(filepath.Join(dir, ProvenanceName))
			require.NoError(t, err)
			put(t, dir, ProvenanceName, string(text)+"\n")
		}, BadProvenance},
		"endless provenance": {func(t *testing.T, dir string) {
			put(t, dir, ProvenanceName, strings.Repeat("x", MaxSize+1))
		}, BadProvenance},
	} {
		t.Run(name, func(t *testing.T) {
			dir, p := release(t, nil)
			tc.change(t, dir)
			v, err := Verify(dir, newMaker().key(t), p)
			require.NoError(t, err)
			require.Equal(t, tc.want, v.Outcome, v.Message)
			require.False(t, v.OK)
			require.NotEmpty(t, v.Message)
		})
	}
}

// A release that was signed by mistake: its provenance is of something else.
func TestProvenanceOfSomethingElse(t *testing.T) {
	source := func(s *Statement) *Resource { return &s.Predicate.BuildDefinition.Dependencies[0] }
	for name, change := range map[string]func(s *Statement, sums Sums){
		"another commit": func(s *Statement, _ Sums) {
			source(s).Digest["gitCommit"] = strings.Repeat("f", 40)
		},
		"no commit": func(s *Statement, _ Sums) { source(s).Digest = nil },
		"two commits": func(s *Statement, _ Sums) {
			d := &s.Predicate.BuildDefinition.Dependencies
			*d = append(*d, (*d)[0])
		},
		"another statement": func(s *Statement, _ Sums) { s.Type = "https://in-toto.io/Statement/v0.1" },
		"another predicate": func(s *Statement, _ Sums) {
			s.PredicateType = "https://slsa.dev/provenance/v0.2"
		},
		"another build":        func(s *Statement, _ Sums) { s.Predicate.BuildDefinition.BuildType = "x" },
		"a file is missing":    func(s *Statement, _ Sums) { s.Subject = s.Subject[1:] },
		"a file twice":         func(s *Statement, _ Sums) { s.Subject = append(s.Subject, s.Subject[0]) },
		"no file":              func(s *Statement, _ Sums) { s.Subject = nil },
		"the program is other": func(s *Statement, sums Sums) { s.Subject[2].Digest["sha256"] = sumOf("x") },
		"it is not listed":     func(_ *Statement, sums Sums) { sums[ProvenanceName] = sumOf("x") },
	} {
		t.Run(name, func(t *testing.T) {
			dir, p := release(t, change)
			v, err := Verify(dir, newMaker().key(t), p)
			require.NoError(t, err)
			require.Equal(t, BadProvenance, v.Outcome, v.Message)
		})
	}
	files := theFiles()
	good, err := json.Marshal(NewStatement(files, theCommit, nil, nil))
	require.NoError(t, err)
	_, err = readStatement(good, files)
	require.NoError(t, err)
	for _, text := range []string{string(good) + "{}", string(good) + "x", "", "{}", "null", "[]",
		strings.Replace(string(good), `{"_type"`, `{"more":1,"_type"`, 1)} {
		_, err := readStatement([]byte(text), files)
		require.ErrorIs(t, err, errStatement, text)
	}
}

// Checksums in any form but the one that is written, though signed.
func TestChecksums(t *testing.T) {
	good := string(theFiles().Text())
	list, err := readSums([]byte(good))
	require.NoError(t, err)
	require.Equal(t, theFiles(), list)
	a, b := sumOf("a"), sumOf("b")
	for name, text := range map[string]string{
		"nothing":                   "",
		"two entries for a name":    a + "  x\n" + b + "  x\n",
		"the same entry twice":      a + "  x\n" + a + "  x\n",
		"CRLF":                      strings.ReplaceAll(good, "\n", "\r\n"),
		"a carriage return":         a + "  x\r\n",
		"no last line end":          strings.TrimSuffix(good, "\n"),
		"behind it":                 good + "x",
		"an empty line":             good + "\n",
		"a comment":                 "# x\n" + good,
		"out of order":              a + "  y\n" + b + "  x\n",
		"upper case":                strings.ToUpper(a) + "  x\n",
		"another digest":            a[:62] + "  x\n",
		"a longer digest":           a + "00  x\n",
		"one space":                 a + " x\n",
		"binary mode":               a + " *x\n",
		"three spaces":              a + "   x\n",
		"escaped":                   `\` + a + `  x\n` + "\n",
		"up":                        a + "  ../x402-wallet\n",
		"up inside":                 a + "  x/../../x402-wallet\n",
		"from the root":             a + "  /usr/bin/x402-wallet\n",
		"here":                      a + "  ./x402-wallet\n",
		"nowhere":                   a + "  .\n",
		"no name":                   a + "  \n",
		"a directory":               a + "  x/\n",
		"two slashes":               a + "  x//x402-wallet\n",
		"a backslash":               a + "  x\\x402-wallet\n",
		"a drive":                   a + "  C:x402-wallet\n",
		"a NUL":                     a + "  x\x00y\n",
		"a terminal's escape":       a + "  x\x1b[2Ky\n",
		"letters that look alike":   a + "  х402-wallet\n",
		"a byte that is no letter":  a + "  x\xff\n",
		"a byte order mark":         "\ufeff" + good,
		"GNU's other form":          "SHA256 (x) = " + a + "\n",
		"a line separator of UTF-8": a + "  x\u2028y\n",
	} {
		_, err := readSums([]byte(text))
		require.ErrorIs(t, err, errSums, name)
		dir, p := release(t, nil)
		put(t, dir, SumsName, text)
		put(t, dir, SignatureName, string(newMaker().sign(t, []byte(text))))
		v, err := Verify(dir, newMaker().key(t), p)
		require.NoError(t, err)
		require.Equal(t, BadSums, v.Outcome, name)
	}
}

// What cannot be looked at is an error and no verdict.
func TestNothingToVerify(t *testing.T) {
	dir, p := release(t, nil)
	for _, where := range []string{filepath.Join(dir, "nowhere"), t.TempDir(), p.Path,
		filepath.Join(dir, SignatureName)} {
		_, err := Verify(where, newMaker().key(t), p)
		require.Error(t, err, where)
	}
	_, err := Verify(dir, newMaker().key(t), Program{Path: filepath.Join(dir, "nothing")})
	require.Error(t, err)
	put(t, dir, SumsName, strings.Repeat("x", MaxSize+1))
	_, err = Verify(dir, newMaker().key(t), p)
	require.ErrorContains(t, err, fmt.Sprint(MaxSize))
}

func FuzzVerify(f *testing.F) {
	key := goldenKey(f, "release.pub")
	sums, signature := golden(f, "SHA256SUMS"), golden(f, "SHA256SUMS.sig")
	f.Add(sums, signature)
	f.Add(sums, golden(f, "other-purpose.sig"))
	f.Add([]byte{}, armoured([]byte("SSHSIG\x00\x00\x00\x01")))
	f.Fuzz(func(t *testing.T, message, text []byte) {
		if key.Verify(message, text) == nil { // nobody has the key any more
			require.Equal(t, sums, message)
		}
		if list, err := readSums(message); err == nil {
			require.Equal(t, message, list.Text())
		}
	})
}
