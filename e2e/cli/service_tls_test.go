//go:build unix

package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/sandbox"
)

type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.make("ca", &x509.Certificate{Subject: pkix.Name{CommonName: "test"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) make(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
	require.NoError(a.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		require.NoError(a.t, os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600))
	}
	made, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return made, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// client is an agent's, with a certificate of this name; "": it shows none.
func (a *authority) client(name string) *http.Client {
	a.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	config := &tls.Config{RootCAs: roots}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.file(name+".pem"), a.file(name+".key"))
		require.NoError(a.t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	a.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Over TLS an agent is let in by the subject of its certificate, too: of an authority that the owner named,
// and where the owner's rules know it.
func TestAgentsByCertificate(t *testing.T) {
	t.Parallel()
	own, other := newAuthority(t), newAuthority(t)
	own.make("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	agent := func(by *authority, name string) {
		subject := pkix.Name{CommonName: name, Organization: []string{"Example"}}
		by.make(name, &x509.Certificate{Subject: subject,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	agent(own, "carol")
	agent(own, "dave")
	agent(other, "carol")
	w, env := householdWith(t, sandbox.Options{}, func(w *world) string {
		return w.rules(sandbox.Rules{}) + "\n[agents.carol]\ncertificate = \"CN=carol,O=Example\"\n"
	})
	s := startService(t, append(env, passphraseFile(t)), "--http", "127.0.0.1:0", "--tls-certificate",
		own.file("server.pem"), "--tls-key", own.file("server.key"), "--client-ca", own.file("ca.pem"))
	asks := func(client *http.Client) (status int, protocol, body string, err error) {
		r := s.post("", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x402_pay",`+
			`"arguments":`+weather(w, "certificate")+`,"_meta":{"io.modelcontextprotocol/protocolVersion":`+
			`"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},`+
			`"io.modelcontextprotocol/clientCapabilities":{}}}}`)
		for name, value := range map[string]string{"Mcp-Protocol-Version": "2026-07-28",
			"Mcp-Method": "tools/call", "Mcp-Name": "x402_pay"} {
			r.Header.Set(name, value)
		}
		answer, err := client.Do(r)
		if err != nil {
			return 0, "", "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return answer.StatusCode, answer.Proto, string(text), err
	}
	_, protocol, body, err := asks(own.client("carol"))
	require.NoError(t, err)
	require.Contains(t, body, `"status":"paid"`)
	require.Equal(t, "HTTP/2.0", protocol)
	for _, stranger := range []*http.Client{own.client(""), own.client("dave")} {
		status, _, _, err := asks(stranger)
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, status)
	}
	pair, err := tls.LoadX509KeyPair(other.file("carol.pem"), other.file("carol.key"))
	require.NoError(t, err)
	forged := own.client("")
	forged.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(
		*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &pair, nil // whoever the server says it believes
	}
	_, _, _, err = asks(forged)
	require.Error(t, err)
	require.Len(t, w.Settlements(), 1)

	out, _ := runs(t, 0, env, "history", "--agent", "carol")
	require.Contains(t, out, `"count": 1`)
	_, said := runs(t, 2, env, "serve", "--client-ca", own.file("ca.pem"))
	require.Contains(t, said, "--client-ca needs")
}
