package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// goodJoin is a join.json of an agent, or of a pattern.
func goodJoin(t testing.TB, agent string) Join {
	_, a := golden(t)
	owner := keyOf(t, ownerSeed)
	labels := map[string]string{"env": "prod"}
	e := a.NewEnrolment(Key(owner.Public()), agent, "research", labels, noon, noon.Add(24*time.Hour))
	signed, err := e.Sign(owner)
	require.NoError(t, err)
	j := Join{Format: 1, Owner: a.Owner, Labels: labels, Signer: "unix:/run/x402/signer.sock",
		Enrolment: signed, Ledger: JoinLedger{ID: a.Ledger,
			URL:      "postgres://research@db.example/x402?sslmode=verify-full",
			RootCert: "/etc/x402/root.crt", PasswordFile: "/run/secrets/ledger"}}
	if IsName(agent) {
		j.Agent = agent
	}
	return j
}

func TestJoin(t *testing.T) {
	_, a := golden(t)
	j := goodJoin(t, "research-7")
	data, err := j.Encode()
	require.NoError(t, err)
	again, err := ParseJoin(data)
	require.NoError(t, err)
	require.Equal(t, j, again)
	require.Equal(t, a, again.Anchor())
	e, err := again.Anchor().VerifyEnrolment(again.Enrolment, Bundle{}, nil, noon)
	require.NoError(t, err)
	require.Equal(t, "research", e.Team)
	name, err := again.Name("research-8")
	require.NoError(t, err)
	require.Equal(t, "research-7", name)

	many := goodJoin(t, "research-*")
	name, err = many.Name("research-8")
	require.NoError(t, err)
	require.Equal(t, "research-8", name)
	for _, machine := range []string{"", "sales-1", "research", "research-*", "Research-8",
		"research-8.local"} {
		_, err := many.Name(machine)
		require.Equal(t, x402.SetupFailed, x402.AsError(err).Code, machine)
	}
}

// Each fault of a join.json, and that none repeats what stands there.
func TestJoinRefuses(t *testing.T) {
	const secret = "hunter2hunter2"
	for name, row := range map[string]struct {
		edit func(*Join)
		says string
	}{
		"a password in the url": {func(j *Join) { j.Ledger.URL = "postgres://me:" + secret + "@127.0.0.1/x" },
			"has a password"},
		"a password beside it": {func(j *Join) { j.Ledger.URL = "postgres://127.0.0.1/x?password=" + secret },
			"has a password"},
		"weak TLS": {func(j *Join) { j.Ledger.URL = "postgres://db.example/x?sslmode=require" },
			"verify-full"},
		"no url":            {func(j *Join) { j.Ledger.URL = "" }, "postgres://"},
		"no ledger":         {func(j *Join) { j.Ledger.ID = "" }, "ledger's id"},
		"another ledger":    {func(j *Join) { j.Ledger.ID = "OTHER" }, "another ledger"},
		"no owner":          {func(j *Join) { j.Owner = Key{} }, "no owner's key"},
		"format 2":          {func(j *Join) { j.Format = 2 }, "format 2"},
		"no format":         {func(j *Join) { j.Format = 0 }, "format 0"},
		"another agent":     {func(j *Join) { j.Agent = "research-8" }, "another agent"},
		"no agent":          {func(j *Join) { j.Agent = "" }, "no agent"},
		"a pattern for one": {func(j *Join) { j.Agent = "research-*" }, "another agent"},
		"other labels":      {func(j *Join) { j.Labels = map[string]string{"env": "test"} }, "labels"},
		"no labels":         {func(j *Join) { j.Labels = nil }, "labels"},
		"a relative file":   {func(j *Join) { j.Ledger.PasswordFile = "p" }, "full path"},
		"a relative root":   {func(j *Join) { j.Ledger.RootCert = "r" }, "full path"},
		"a relative command": {func(j *Join) {
			j.Ledger.PasswordFile, j.Ledger.PasswordCommand = "", []string{"t"}
		}, "full path"},
		"file and command": {func(j *Join) { j.Ledger.PasswordCommand = []string{"/t"} },
			"password_file and"},
		"two roots":            {func(j *Join) { j.Ledger.URL += "&sslrootcert=/r" }, "sslrootcert"},
		"a signer by http":     {func(j *Join) { j.Signer = "http://h:1" }, "signer"},
		"a signer with a path": {func(j *Join) { j.Signer = "https://h:1/x" }, "signer"},
		"a signer with a name": {func(j *Join) { j.Signer = "https://u:" + secret + "@h:1" }, "signer"},
		"a relative socket":    {func(j *Join) { j.Signer = "unix:run/x" }, "signer"},
		"no enrolment":         {func(j *Join) { j.Enrolment = Signed{} }, "cannot be read"},
		"a changed enrolment": {func(j *Join) { j.Enrolment.Signature = make([]byte, 64) },
			"its owner signed"},
		"another owner's": {func(j *Join) {
			_, a := golden(t)
			stranger := keyOf(t, strings.Repeat("07", 32))
			e := a.NewEnrolment(j.Owner, "research-7", "research", j.Labels, noon, noon.Add(time.Hour))
			j.Enrolment = signedRaw(t, goldenSigned(t, "enrolment"), e, stranger)
		}, "its owner signed"},
	} {
		t.Run(name, func(t *testing.T) {
			j := goodJoin(t, "research-7")
			row.edit(&j)
			_, err := j.Encode()
			require.ErrorContains(t, err, row.says)
			require.Equal(t, x402.SetupFailed, x402.AsError(err).Code)
			require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, x402.AsError(err)), secret)
		})
	}
}

func goldenSigned(t testing.TB, purpose string) Signed {
	g, _ := golden(t)
	for p, s := range g.Signed {
		if string(p) == purpose {
			return s.Signed
		}
	}
	t.Fatal(purpose)
	return Signed{}
}

func TestJoinIsStrictJSON(t *testing.T) {
	good, err := goodJoin(t, "research-7").Encode()
	require.NoError(t, err)
	text := string(good)
	for name, bad := range map[string]string{
		"empty":                 "",
		"not JSON":              text[:len(text)-3],
		"something behind":      text + "{}",
		"a list":                "[" + text + "]",
		"null":                  "null",
		"a member more":         strings.Replace(text, `{`, `{"more":1,`, 1),
		"a password":            strings.Replace(text, `"url"`, `"password":"hunter2hunter2","url"`, 1),
		"a member twice":        strings.Replace(text, `"format": 1,`, `"format": 1, "format": 1,`, 1),
		"twice, once escaped":   strings.Replace(text, `"format": 1,`, `"format": 1, "\u0066ormat": 1,`, 1),
		"in capitals":           strings.Replace(text, `"format"`, `"Format"`, 1),
		"in capitals, below":    strings.Replace(text, `"url"`, `"URL"`, 1),
		"another type":          strings.Replace(text, `"format": 1`, `"format": "hunter2hunter2"`, 1),
		"a number for text":     strings.Replace(text, `"/run/secrets/ledger"`, `1234567890123`, 1),
		"a byte order mark":     "\ufeff" + text,
		"not UTF-8":             strings.Replace(text, "prod", "pr\xffod", 1),
		"too long":              text + strings.Repeat(" ", MaxJoin),
		"deep":                  strings.Repeat("[", MaxJoin),
		"a key that is none":    strings.Replace(text, "ed25519:", "ed25519:A", 1),
		"an enrolment as text":  strings.Replace(text, `"enrolment": {`, `"enrolment": "x", "x": {`, 1),
		"base64 that is broken": strings.Replace(text, `"statement": "`, `"statement": "!`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, text, bad)
			_, err := ParseJoin([]byte(bad))
			require.Error(t, err)
			e := x402.AsError(err)
			require.Equal(t, x402.SetupFailed, e.Code)
			require.NotContains(t, fmt.Sprintf("%v %+v", err, *e), "hunter2")
			require.NotContains(t, fmt.Sprintf("%v %+v", err, *e), "1234567890123")
			require.Contains(t, e.Hint, "agents enroll")
		})
	}
}

func TestReadJoin(t *testing.T) {
	j := goodJoin(t, "research-7")
	data, err := j.Encode()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "join.json")
	require.NoError(t, os.WriteFile(path, data, 0o644))
	again, err := ReadJoin(path)
	require.NoError(t, err)
	require.Equal(t, j, again)
	_, err = ReadJoin(filepath.Join(dir, "none"))
	require.Equal(t, x402.SetupFailed, x402.AsError(err).Code)
}

// Whatever is read as a join.json has no password, an owner, and an enrolment for its agent, and is written
// as it was read.
func FuzzJoin(f *testing.F) {
	for _, agent := range []string{"research-7", "research-*"} {
		data, err := goodJoin(f, agent).Encode()
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"format":1,"ledger":{"url":"postgres://me:pw@127.0.0.1/x","id":"L"},"owner":"ed25519:"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := ParseJoin(data)
		if err != nil {
			require.Equal(t, x402.SetupFailed, x402.AsError(err).Code)
			return
		}
		_, rest, _ := strings.Cut(j.Ledger.URL, "://")
		authority, _, _ := strings.Cut(rest, "/")
		user, _, found := strings.Cut(authority, "@")
		require.False(t, found && strings.Contains(user, ":"), "a password")
		require.NotEqual(t, Key{}, j.Owner)
		text, err := j.Encode()
		require.NoError(t, err)
		again, err := ParseJoin(text)
		require.NoError(t, err)
		require.Equal(t, j.Anchor(), again.Anchor())
		require.Equal(t, j.Enrolment, again.Enrolment)
	})
}
