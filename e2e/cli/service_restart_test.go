//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/sandbox"
)

// A service that is killed while a payment is on its way, and started again: the agent's session goes on, it
// is told to make the very same call again, and that gets what was bought, paid once.
func TestAServiceIsRestartedInTheMiddle(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	env = append(env, passphraseFile(t))
	s := startService(t, env)
	agent := serve(t, s.env()...)
	agent.call("x402_pay", weather(w, "unlocks"))

	w.Inject("seller hangs before", 1)
	settled, presented := len(w.Settlements()), w.Presentations()
	call := weather(w, "killed")
	agent.send("tools/call", fmt.Sprintf(`{"name":"x402_pay","arguments":%s}`, call))
	require.Eventually(t, func() bool { return w.Presentations() == presented+1 }, 20*time.Second,
		time.Millisecond)
	require.NoError(t, s.Cmd.Process.Kill())
	s.Stop()
	program, env := served(t, env)
	testworld.StartServiceAt(t, program, s.Socket, env)

	require.True(t, agent.out.Scan())
	var answer struct {
		ID    int
		Error struct{ Message string }
	}
	require.NoError(t, json.Unmarshal(agent.out.Bytes(), &answer), "%s", agent.out.Text())
	require.Equal(t, agent.nextID, answer.ID)
	require.Contains(t, answer.Error.Message, "make the very same call again")
	var got struct{ Status, Content string }
	require.NoError(t, json.Unmarshal([]byte(agent.call("x402_pay", call)), &got))
	require.Equal(t, "paid", got.Status)
	require.Equal(t, sandbox.Content("/weather"), got.Content)
	require.Len(t, w.Settlements(), settled+1)

	_, status := paymentOf(t, agent.call("x402_pay", weather(w, "another")))
	require.Equal(t, "paid", status)
	agent.leave()
	require.Zero(t, agent.cmd.ProcessState.ExitCode())
}
