package agent_test

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/socket"
	. "x402-wallet/wallet/agent"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/x402"
)

// What listens on the socket and is no unlock agent is called that: nothing it says is repeated, and
// nothing of it is a signature.
func TestAGarbledAgent(t *testing.T) {
	for name, answer := range map[string]string{
		"no JSON":          "hello SECRET\n",
		"a number":         "42\n",
		"an unknown field": `{"signature":"AAAA","SECRET":1}`,
		"half":             `{"signature":"AAA`,
		"a short one":      `{"signature":"AAAA"}`,
		"an empty one":     `{}`,
		"no code":          `{"error":{"message":"SECRET"}}`,
		"an unknown code":  `{"error":{"code":"SECRET","message":"SECRET","hint":"SECRET"}}`,
		"endless":          `{"signature":"` + strings.Repeat("A", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			home := shortDir(t)
			l := must.Get(socket.Listen(t.Context(), filepath.Join(home, SocketName), 0o600, home))(t)
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				_, _ = c.Read(make([]byte, MaxRequest))
				_, _ = io.WriteString(c, answer)
			}()
			client := asksOf(&client.Client{Home: home})
			_, err := client.SignPull(t.Context(), "p", x402.Pull{})
			coded := x402.AsError(err)
			require.Equal(t, x402.WalletLocked, coded.Code)
			require.Contains(t, coded.Message, "not as the unlock agent of this version does")
			require.Contains(t, coded.Hint, "agent.sock")
			require.NotContains(t, coded.Message+coded.Hint, "SECRET")
		})
	}
}
