package e2e

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/x402test"
)

// hostile is how many visitors without money come; `make load` sends 10,000.
var hostile = flag.Int("hostile", 1500, "visitors that TestPaywallUnderAttack sends")

// maxResident is what the paywall's process may hold of memory then, its ledger and its lists included.
const maxResident = 150 << 20

// attacks are what a visitor without money does; each is made by one of a crowd, in turn.
var attacks = map[string]func(address string){
	"opens a session with all that it can say of itself": func(address string) {
		many := manyKeys(6000)
		ask(address, "",
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
				`"capabilities":{"experimental":{`+many+`},"elicitation":{}},"clientInfo":{"name":"g","version":"1"}}}`)
	},
	"opens a session, a stream, and reads nothing": func(address string) {
		id := ask(address, "", opening)
		raw(address, "GET /mcp HTTP/1.1\r\nHost: "+address+"\r\nAccept: text/event-stream\r\n"+
			"Mcp-Session-Id: "+id+"\r\n\r\n")
	},
	"says its headers slowly": func(address string) {
		var names strings.Builder
		for i := range 2200 { // as many as are read
			fmt.Fprintf(&names, "x%d:\r\n", i)
		}
		raw(address, "POST /mcp HTTP/1.1\r\nHost: "+address+"\r\n"+names.String())
	},
	"says its body slowly": func(address string) {
		raw(address, "POST /mcp HTTP/1.1\r\nHost: "+address+"\r\nContent-Type: application/json\r\n"+
			"Content-Length: 65000\r\n\r\n"+strings.Repeat(" ", 60000))
	},
	"listens without an end": func(address string) {
		body := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{` +
			`"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientCapabilities":{}}}}`
		raw(address, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
			"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"+
			"Mcp-Method: subscriptions/listen\r\nContent-Length: %d\r\n\r\n%s", address, len(body), body))
	},
	"calls a tool with much": func(address string) {
		id := ask(address, "", opening)
		ask(address, id,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hello","arguments":{`+
				manyKeys(5000)+`},"_meta":{"a":[`+strings.Repeat("[],", 1000)+`[]]}}}`)
	},
	"asks for a price and goes": func(address string) {
		id := ask(address, "", opening)
		ask(address, id,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search","arguments":{}}}`)
	},
	"sends batches": func(address string) {
		ask(address, "", "["+strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, 1000)+opening+"]")
	},
}

const opening = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{"elicitation":{}},"clientInfo":{"name":"g","version":"1"}}}`

func manyKeys(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `"%d":[],`, i)
	}
	return strings.TrimSuffix(all.String(), ",")
}

// crowd keeps the connections of those that do not go away.
var crowd struct {
	sync.Mutex
	open []net.Conn
}

var asks = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

func ask(address, session, body string) (id string) {
	request, err := http.NewRequest(http.MethodPost, "http://"+address+"/mcp", strings.NewReader(body))
	if err != nil {
		return ""
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		request.Header.Set("Mcp-Session-Id", session)
	}
	answer, err := asks.Do(request)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.Header.Get("Mcp-Session-Id")
}

func raw(address, text string) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(c, text)
	crowd.Lock()
	defer crowd.Unlock()
	crowd.open = append(crowd.open, c)
	if len(crowd.open) > 4000 { // of the files that this process may have
		crowd.open[0].Close()
		crowd.open = crowd.open[1:]
	}
}

// A crowd of visitors without money does what it can think of; the paywall's memory stays small, and
// who pays is served all the while.
func TestPaywallUnderAttack(t *testing.T) {
	s := newShop(t, "listen = \"127.0.0.1:0\"\n")
	seller := startPaywall(t, s.home, s.bin, s.file)
	address := testlab.HostPort(seller.url)
	before := resident(t, seller.Cmd)
	began := time.Now()
	t.Cleanup(func() {
		for _, c := range crowd.open {
			c.Close()
		}
		crowd.open = nil
		asks.CloseIdleConnections()
	})

	var visits, most atomic.Int64
	var all sync.WaitGroup
	over := make(chan struct{})
	all.Go(func() { // what the process holds, looked at often
		for {
			most.Store(max(most.Load(), resident(t, seller.Cmd)))
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	var names []string
	for name := range attacks {
		names = append(names, name)
	}
	var attackers sync.WaitGroup
	for range 32 {
		attackers.Go(func() {
			for n := visits.Add(1); n <= int64(*hostile); n = visits.Add(1) {
				attacks[names[int(n)%len(names)]](address)
			}
		})
	}
	bought, tries := 0, 0
	finished := make(chan struct{})
	go func() { attackers.Wait(); close(finished) }()
	for done := false; !done || bought < 20; {
		select {
		case <-finished:
			done = true
		default:
		}
		tries++
		require.Less(t, tries, 1000)
		version := []string{"2025-11-25", "2026-07-28"}[tries%2]
		if s.tries(t, seller.url, version) {
			bought++
		}
	}
	close(over)
	all.Wait()
	t.Logf("%d visitors in %s; %d MiB before, %d MiB at most; %d of %d purchases at the first try", *hostile,
		time.Since(began).Round(time.Second), before>>20, most.Load()>>20, bought, tries)
	require.Less(t, most.Load(), int64(maxResident))
	s.world.AssertPaid(t, bought, x402test.Payment{})
	require.GreaterOrEqual(t, bought*10, tries*9, "who pays is served")
}

func (s *shop) tries(t *testing.T, endpoint, version string) bool {
	t.Helper()
	client, err := mcp.NewClient(&mcp.Implementation{Name: "buyer"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: endpoint, DisableStandaloneSSE: true},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Logf("a buyer did not get in: %v", err)
		return false
	}
	defer client.Close()
	asked, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "search"})
	if err != nil {
		t.Logf("a buyer was not asked: %v", err)
		return false
	}
	given, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "search",
		Meta: mcp.Meta{"x402/payment": signOffer(t, s.world, asked)}})
	if err != nil {
		t.Logf("a buyer was not served: %v", err)
		return false
	}
	require.False(t, given.IsError, "%v", given.Content)
	return true
}

func resident(t *testing.T, of *exec.Cmd) (bytes int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", of.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &bytes); err == nil {
			return bytes << 10
		}
	}
	return 0
}
