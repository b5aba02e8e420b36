package signer

import (
	"context"
	"crypto/ecdsa"
	stded25519 "crypto/ed25519"
	"encoding/asn1"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/mr-tron/base58"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/internal/child"
	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

// now is the time of every test: services compare it with what a request says.
var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// kept are the keys that a service of a test keeps, and others that it has no business to sign with.
type kept struct {
	chain         string
	evm, otherEVM *ecdsa.PrivateKey
	solana, other stded25519.PrivateKey
}

func newKept(t *testing.T, chain string) kept {
	k := kept{chain: chain}
	var err error
	k.evm = must.Get(crypto.GenerateKey())(t)
	k.otherEVM = must.Get(crypto.GenerateKey())(t)
	_, k.solana, err = stded25519.GenerateKey(nil)
	require.NoError(t, err)
	_, k.other, err = stded25519.GenerateKey(nil)
	require.NoError(t, err)
	return k
}

func (k kept) address() string {
	if k.chain == wallet.ChainEVM {
		return crypto.PubkeyToAddress(k.evm.PublicKey).Hex()
	}
	return base58.Encode(k.solana.Public().(stded25519.PublicKey))
}

// spki is the public key in DER, written by hand.
func (k kept) spki(t *testing.T) []byte {
	if k.chain == wallet.ChainSolana {
		return append([]byte{0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0}, k.solana[32:]...)
	}
	return must.Get(asn1.Marshal(struct {
		Algorithm struct{ Key, Curve asn1.ObjectIdentifier }
		Point     asn1.BitString
	}{struct{ Key, Curve asn1.ObjectIdentifier }{ecKey, oidSecp256k1},
		asn1.BitString{Bytes: crypto.FromECDSAPub(&k.evm.PublicKey), BitLength: 8 * 65}}))(t)
}

// sign signs bytes as this service would, or with a lie: r ‖ s ‖ v over a digest, or Ed25519 over a message.
func (k kept) sign(lie string, bytes []byte) []byte {
	if lie == "another order" {
		bytes = append([]byte{bytes[0] ^ 1}, bytes[1:]...)
	}
	if k.chain == wallet.ChainSolana {
		key := k.solana
		if lie == "another key" {
			key = k.other
		}
		return stded25519.Sign(key, bytes)
	}
	key := k.evm
	if lie == "another key" {
		key = k.otherEVM
	}
	signature, err := crypto.Sign(bytes, key)
	if err != nil {
		panic(err)
	}
	return signature
}

// der is an ECDSA signature as HSMs write it; of those it may have a high s.
func der(signature []byte, high bool) []byte {
	r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:64])
	if high {
		s.Sub(crypto.S256().Params().N, s)
	}
	out, err := asn1.Marshal(struct{ R, S *big.Int }{r, s})
	if err != nil {
		panic(err)
	}
	return out
}

// service is an API on this machine that checks each request to the letter, and lies on command.
type service struct {
	*httptest.Server
	kept
	t      *testing.T
	lie    atomic.Value // a string; "": it is honest
	asked  atomic.Int64
	strays atomic.Int64 // requests that were led astray
	echo   string       // what a refusal repeats of the request and its credentials
	handle func(s *service, r *http.Request, body []byte) (status int, answer any)
}

func newService(t *testing.T, chain string,
	handle func(s *service, r *http.Request, body []byte) (int, any)) *service {
	s := &service{kept: newKept(t, chain), t: t, handle: handle}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.asked.Add(1)
	if r.URL.Path == "/stray" {
		s.strays.Add(1)
		return
	}
	refuse := func(status int) {
		w.WriteHeader(status)
		fmt.Fprintf(w,
			`{"error":{"code":%d,"status":"DENIED_WITH_A_WORD","message":%q},"message":%q,"__type":%q}`,
			status, s.echo, s.echo, s.echo)
	}
	switch s.lying() {
	case "silence":
		<-r.Context().Done()
	case "garbage":
		_, _ = io.WriteString(w, "\x00\x1b[2J{")
	case "two keys":
		_, _ = io.WriteString(w, `{"a":1,"a":2}`)
	case "huge":
		_, _ = io.WriteString(w, `{"a":"`+strings.Repeat("x", 2*maxBody)+`"}`)
	case "flood": // without an end
		for err := error(nil); err == nil && r.Context().Err() == nil; {
			_, err = w.Write(make([]byte, maxBody))
		}
	case "redirect":
		http.Redirect(w, r, "/stray", http.StatusTemporaryRedirect)
	case "403":
		refuse(http.StatusForbidden)
	case "429":
		refuse(http.StatusTooManyRequests)
	case "500":
		refuse(http.StatusInternalServerError)
	case "nothing":
		_, _ = io.WriteString(w, `{}`)
	case "broken off":
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{`)
	default:
		status, answer := s.handle(s, r, body)
		w.WriteHeader(status)
		if json.NewEncoder(w).Encode(answer) != nil {
			panic("no answer")
		}
	}
}

// toLie has the service lie from now on.
func (s *service) toLie(how string) { s.lie.Store(how) }

func (s *service) lying() string {
	how, _ := s.lie.Load().(string)
	return how
}

// must fails the test from the service's goroutine, and reports whether the request is as it has to be.
func (s *service) must(is bool, what string, args ...any) bool {
	if !is {
		s.t.Errorf("the request's "+what, args...)
	}
	return is
}

// options are a wallet's surroundings; secret files are real ones.
func options() Options {
	return Options{HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		Secret: config.ReadSecretFile, Now: func() time.Time { return now },
		Program: func(argv, env []string, _ *bool) child.Program {
			return child.Program{Argv: argv, Env: append([]string{childtest.Env}, env...)}
		}}
}

func secretFile(t *testing.T, content string) string {
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// lies are what any service may do wrong, and the code of what comes of it.
var lies = map[string]x402.Code{
	"another key": x402.SetupFailed, "another order": x402.SetupFailed, "silence": x402.Timeout,
	"flood": x402.SetupFailed, "garbage": x402.SetupFailed, "two keys": x402.SetupFailed,
	"huge":     x402.SetupFailed,
	"redirect": x402.SetupFailed, "403": x402.SetupFailed, "429": x402.NetworkError, "500": x402.NetworkError,
	"nothing": x402.SetupFailed, "broken off": x402.NetworkError,
}

// tries has a signer sign for real and through every lie, and looks for secrets in what is said.
func tries(t *testing.T, s *service, rules config.Signer, secrets ...string) {
	rules.Address, rules.Timeout, rules.Chain = s.address(), 30*time.Second, s.chain
	signer := New("hsm", rules, options())
	for range 4 { // both values of v, in all likelihood
		require.NoError(t, wallet.TestSigner(t.Context(), signer, s.chain, now))
	}
	require.NoError(t, signer.Check(t.Context()))
	address := must.Get(signer.Address(t.Context()))(t)
	require.Equal(t, s.address(), address)
	s.echo = strings.Join(secrets, " ")
	for lie, code := range lies {
		t.Run(lie, func(t *testing.T) {
			s.toLie(lie)
			defer func() { s.toLie("") }()
			rules := rules
			if lie == "silence" {
				rules.Timeout = 50 * time.Millisecond
			}
			signer := New("hsm", rules, options()) // that remembers no token
			err := wallet.TestSigner(t.Context(), signer, s.chain, now)
			require.Error(t, err)
			coded := x402.AsError(err)
			require.Equal(t, code, coded.Code, err.Error())
			require.Contains(t, coded.Message, "hsm")
			for _, secret := range secrets {
				require.NotContains(t, coded.Message+coded.Hint+err.Error(), secret)
			}
			require.NotContains(t, coded.Message, "\x1b")
			require.Zero(t, s.strays.Load(), "nothing goes where a redirect leads")
			if lie == "403" {
				require.Contains(t, coded.Message, "DENIED_WITH_A_WORD")
			}
		})
	}
	s.Close()
	err := wallet.TestSigner(t.Context(), New("hsm", rules, options()), s.chain, now)
	require.True(t, x402.HasCode(err, x402.NetworkError), "%v", err)
	rules.SecretFile = filepath.Join(t.TempDir(), "none")
	err = wallet.TestSigner(t.Context(), New("hsm", rules, options()), s.chain, now)
	require.True(t, x402.HasCode(err, x402.SetupFailed), "%v", err)
}

// A call that ends first is its caller's to explain, whatever the service does.
func TestTheCallsEndIsTheCallers(t *testing.T) {
	s := newService(t, wallet.ChainEVM, nil)
	s.toLie("silence")
	signer := New("hsm", config.Signer{Kind: config.SignerAWS, Chain: s.chain, Address: s.address(),
		URL:    s.URL,
		Region: "r", Key: "k", Timeout: time.Minute,
		SecretFile: secretFile(t, `{"AccessKeyId":"a","SecretAccessKey":"b"}`)}, options())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, wallet.TestSigner(ctx, signer, s.chain, now), context.DeadlineExceeded)
}
