package passkey_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/passkey"
	"x402-wallet/internal/passkey/invitation"
	"x402-wallet/internal/passkey/passkeytest"
	"x402-wallet/internal/socket"
)

const origin = "https://wallet.example"

// home is a folder whose path is short enough for a socket.
func home(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "pk-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func made(t *testing.T, a *passkeytest.Authenticator) passkey.Key {
	t.Helper()
	dir := home(t)
	i := must.Get(invitation.Invite(t.Context(), dir, "phone", a.Origin))(t)
	got := make(chan passkey.Key, 1)
	go func() {
		k, _ := i.Wait(t.Context())
		got <- k
	}()
	links := &invitation.Links{Home: dir}
	token := strings.TrimPrefix(i.URL, a.Origin+"/passkeys/add/")
	name, options, err := links.Options(t.Context(), token)
	require.NoError(t, err)
	require.Equal(t, "phone", name)
	must.Get(links.Made(t.Context(), token, a.Create(options)))(t)
	return <-got
}

// A passkey answers a question about one thing, once.
func TestAnswers(t *testing.T) {
	about := passkey.About("approve", "apr_1", "browser")
	for name, c := range map[string]struct {
		change func(a *passkeytest.Authenticator)
		answer func(answer string) string
		about  [32]byte
		says   string // "": it is taken
	}{
		"good": {},
		"no person verified": {change: func(a *passkeytest.Authenticator) { a.Flags = 1 },
			says: "User verification required"},
		"nobody there": {change: func(a *passkeytest.Authenticator) { a.Flags = 1 << 2 },
			says: "User presence required"},
		"backed up, though it cannot be": {change: func(a *passkeytest.Authenticator) { a.Flags |= 1 << 4 },
			says: "backed up"},
		"another origin": {change: func(a *passkeytest.Authenticator) { a.Origin = "https://evil.example" },
			says: "made at"},
		"another port": {change: func(a *passkeytest.Authenticator) { a.Origin = origin + ":8443" },
			says: "made at"},
		"its origin in capitals": {
			change: func(a *passkeytest.Authenticator) { a.Origin = "https://WALLET.example" },
			says:   "made at"},
		"its origin with its port": {
			change: func(a *passkeytest.Authenticator) { a.Origin = origin + ":443" },
			says:   "made at"},
		"http": {change: func(a *passkeytest.Authenticator) { a.Origin = "http://wallet.example" },
			says: "made at"},
		"RP Hash mismatch": {change: func(a *passkeytest.Authenticator) { a.RPID = "example" },
			says: "RP Hash mismatch"},
		"another ceremony": {change: func(a *passkeytest.Authenticator) { a.Type = "webauthn.create" },
			says: "Expected Value: webauthn.get"},
		"in a frame": {change: func(a *passkeytest.Authenticator) { a.Framed = true }, says: "cross origin"},
		"another credential": {change: func(a *passkeytest.Authenticator) { a.ID = []byte{1} },
			says: "no such passkey"},
		"about something else": {about: passkey.About("approve", "apr_2", "browser"),
			says: "another question"},
		"of another browser": {about: passkey.About("approve", "apr_1", "other"), says: "another question"},
		"parts put differently": {about: passkey.About("approveapr_1", "", "browser"),
			says: "another question"},
		"no JSON": {answer: func(string) string { return "{" }, says: "Parse error"},
		"too long": {answer: func(s string) string { return s + strings.Repeat(" ", passkey.MaxAnswer) },
			says: "more than"},
		"another type": {answer: func(s string) string {
			return strings.Replace(s, "public-key", "password", 1)
		}, says: "bad type"},
	} {
		t.Run(name, func(t *testing.T) {
			a, checker := passkeytest.New(origin), passkey.NewChecker()
			k := made(t, a)
			asked := about
			if c.about != [32]byte{} {
				asked = c.about
			}
			options := must.Get(passkey.RequestOptions(origin, checker.Challenge(about)))(t)
			if c.change != nil {
				c.change(a)
			}
			answer := a.Get(options)
			if c.answer != nil {
				answer = []byte(c.answer(string(answer)))
			}
			who, err := checker.Check(map[string]passkey.Key{"phone": k}, asked, answer)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "phone", who)
			_, err = checker.Check(map[string]passkey.Key{"phone": k}, asked, answer)
			require.ErrorContains(t, err, "already", "once")
		})
	}
}

// Each byte of what is signed, and of the signature, counts.
func TestEveryByteCounts(t *testing.T) {
	a, checker := passkeytest.New(origin), passkey.NewChecker()
	k, about := made(t, a), passkey.About("x")
	options := must.Get(passkey.RequestOptions(origin, checker.Challenge(about)))(t)
	whole := must.JSON[map[string]any](a.Get(options))(t)
	response := whole["response"].(map[string]any)
	for _, part := range []string{"authenticatorData", "signature", "clientDataJSON"} {
		right := response[part].(string)
		raw := must.Get(base64.RawURLEncoding.DecodeString(right))(t)
		for i := range raw {
			raw[i] ^= 1
			response[part] = base64.RawURLEncoding.EncodeToString(raw)
			raw[i] ^= 1
			answer := must.Get(json.Marshal(whole))(t)
			_, err := checker.Check(map[string]passkey.Key{"phone": k}, about, answer)
			require.Error(t, err, "%s %d", part, i)
		}
		response[part] = right
	}
	answer := must.Get(json.Marshal(whole))(t)
	_, err := checker.Check(map[string]passkey.Key{"phone": k}, about, answer)
	require.NoError(t, err, "none of the wrong ones used the question up")
}

// A question waits for five minutes, and for the process that asked it.
func TestQuestionsEnd(t *testing.T) {
	a := passkeytest.New(origin)
	keys, about := map[string]passkey.Key{"phone": made(t, a)}, passkey.About("x")
	synctest.Test(t, func(t *testing.T) {
		checker, another := passkey.NewChecker(), passkey.NewChecker()
		answer := func() []byte {
			options := must.Get(passkey.RequestOptions(origin, checker.Challenge(about)))(t)
			return a.Get(options)
		}
		early, late := answer(), answer()
		_, err := another.Check(keys, about, early)
		require.ErrorContains(t, err, "another question", "of another start")
		time.Sleep(passkey.Life - time.Second)
		must.Get(checker.Check(keys, about, early))(t)
		time.Sleep(time.Second)
		require.ErrorIs(t, must.Err(checker.Check(keys, about, late)), passkey.ErrExpired)
		_, err = checker.Check(keys, about, early)
		require.ErrorIs(t, err, passkey.ErrExpired, "nor is one taken again that is forgotten")
	})
}

// A counter that does not go on is a copy's; an authenticator that counts nothing has none.
func TestCounters(t *testing.T) {
	about := passkey.About("x")
	answers := func(a *passkeytest.Authenticator, checker *passkey.Checker, k passkey.Key) error {
		options := must.Get(passkey.RequestOptions(origin, checker.Challenge(about)))(t)
		return must.Err(checker.Check(map[string]passkey.Key{"phone": k}, about, a.Get(options)))
	}
	a, checker := passkeytest.New(origin), passkey.NewChecker()
	a.Count = 7
	k := made(t, a)
	require.EqualValues(t, 7, k.Count)
	require.NoError(t, answers(a, checker, k))
	require.NoError(t, answers(a, checker, k))
	a.Count = 8
	require.ErrorIs(t, answers(a, checker, k), passkey.ErrCloned, "9 was there already")
	a.Count = 6
	require.ErrorIs(t, answers(a, passkey.NewChecker(), k), passkey.ErrCloned, "7 is in the rules")

	still := passkeytest.New(origin)
	still.Still = true
	k = made(t, still)
	for range 3 {
		require.NoError(t, answers(still, checker, k))
	}
	still.Count = 1
	require.NoError(t, answers(still, checker, k))
	still.Count = 0
	require.ErrorIs(t, answers(still, checker, k), passkey.ErrCloned)
}

// What was removed from the rules, or is another key, answers nothing.
func TestOnlyTheRulesPasskeys(t *testing.T) {
	a, checker, about := passkeytest.New(origin), passkey.NewChecker(), passkey.About("x")
	k, other := made(t, a), made(t, passkeytest.New(origin))
	options := must.Get(passkey.RequestOptions(origin, checker.Challenge(about)))(t)
	answer := a.Get(options)
	require.ErrorContains(t, must.Err(checker.Check(nil, about, answer)), "no such passkey")
	other.ID = k.ID
	_, err := checker.Check(map[string]passkey.Key{"phone": other}, about, answer)
	require.ErrorContains(t, err, "assertion signature")
	other = k
	other.Origin = "https://other.example"
	_, err = checker.Check(map[string]passkey.Key{"phone": other}, about, answer)
	require.ErrorContains(t, err, "made at")
}

func TestRegistrations(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *passkeytest.Authenticator)
		says   string
	}{
		"no person verified": {func(a *passkeytest.Authenticator) { a.Flags = 1 },
			"User verification required"},
		"another origin": {func(a *passkeytest.Authenticator) { a.Origin = "https://evil.example" },
			"made at"},
		"RP Hash mismatch": {func(a *passkeytest.Authenticator) { a.RPID = "evil.example" },
			"RP Hash mismatch"},
		"an assertion": {func(a *passkeytest.Authenticator) { a.Type = "webauthn.get" },
			"Expected Value: webauthn.create"},
		"in a frame": {func(a *passkeytest.Authenticator) { a.Framed = true }, "cross origin"},
		"an endless id": {func(a *passkeytest.Authenticator) { a.ID = make([]byte, 1024) },
			"attestation response"},
		"extensions that are none": {func(a *passkeytest.Authenticator) { a.Flags |= 1 << 7 },
			"attestation response"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := home(t)
			i := must.Get(invitation.Invite(t.Context(), dir, "phone", origin))(t)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := i.Wait(ctx)
				ended <- err
			}()
			links, token := &invitation.Links{Home: dir}, filepath.Base(i.URL)
			_, options, err := links.Options(t.Context(), token)
			require.NoError(t, err)
			a := passkeytest.New(origin)
			c.change(a)
			require.ErrorContains(t, must.Err(links.Made(t.Context(), token, a.Create(options))), c.says)
			stop()
			require.ErrorIs(t, <-ended, context.Canceled, "the terminal still waits for a good one")
		})
	}
}

// A link is for whoever has its token, while its terminal waits, once.
func TestLinks(t *testing.T) {
	dir := home(t)
	links := &invitation.Links{Home: dir}
	_, _, err := links.Options(t.Context(), "x")
	require.ErrorIs(t, err, invitation.ErrNoLink)
	i := must.Get(invitation.Invite(t.Context(), dir, "phone", origin))(t)
	_, err = invitation.Invite(t.Context(), dir, "other", origin)
	require.ErrorContains(t, err, "another passkey")
	got := make(chan passkey.Key, 1)
	go func() {
		k, _ := i.Wait(t.Context())
		got <- k
	}()
	token := filepath.Base(i.URL)
	_, _, err = links.Options(t.Context(), token[1:])
	require.ErrorIs(t, err, invitation.ErrNoLink)
	_, options, err := links.Options(t.Context(), token)
	require.NoError(t, err)
	require.NotContains(t, string(options), token)
	a, thief := passkeytest.New(origin), passkeytest.New(origin)
	_, err = links.Made(t.Context(), token[1:], thief.Create(options))
	require.ErrorIs(t, err, invitation.ErrNoLink, "without the token nothing is made")
	must.Get(links.Made(t.Context(), token, a.Create(options)))(t)
	k := <-got
	require.Equal(t, base64.RawURLEncoding.EncodeToString(a.ID), k.ID)
	require.Equal(t, origin, k.Origin)
	require.Eventually(t, func() bool {
		_, _, err := links.Options(t.Context(), token)
		return err != nil
	}, time.Minute, time.Millisecond, "once")
}

// Whoever reaches the terminal's socket, and knows what was asked there, makes nothing without the token.
func TestMadeUnderTheTokenAlone(t *testing.T) {
	dir := home(t)
	i := must.Get(invitation.Invite(t.Context(), dir, "phone", origin))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := i.Wait(ctx)
		ended <- err
	}()
	token := filepath.Base(i.URL)
	_, options, err := (&invitation.Links{Home: dir}).Options(t.Context(), token)
	require.NoError(t, err)
	hash := sha256.Sum256([]byte("x402-wallet link " + token)) // that goes over the socket
	conn := must.Get(socket.Dial(t.Context(), filepath.Join(dir, "passkeys.sock"), dir))(t)
	defer conn.Close()
	require.NoError(t, json.NewEncoder(conn).Encode(map[string]any{"link": hex.EncodeToString(hash[:]),
		"answer": passkeytest.New(origin).Create(options), "mac": make([]byte, 32)}))
	var out struct{ Problem string }
	require.NoError(t, json.NewDecoder(conn).Decode(&out))
	require.Equal(t, invitation.ErrNoLink.Error(), out.Problem)
	stop()
	require.ErrorIs(t, <-ended, context.Canceled, "it still waits")
}

func TestNames(t *testing.T) {
	for _, good := range [][2]string{{"https://wallet.example", "wallet.example"},
		{"https://wallet.example:8443", "wallet.example"}, {"http://localhost:8402", "localhost"},
		{"http://wallet.localhost", "wallet.localhost"}} {
		require.Equal(t, good[1], must.Get(passkey.RPID(good[0]))(t))
	}
	for _, bad := range []string{"http://127.0.0.1:8402", "https://10.0.0.1", "https://[::1]:1",
		"http://wallet.example", "http://notlocalhost", "https://", ""} {
		require.Error(t, must.Err(passkey.RPID(bad)), bad)
	}
}
