package paywall

import (
	"context"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionlessVersion is the first version of MCP that has no sessions.
const sessionlessVersion = "2026-07-28"

// legacyVersions are those before.
var legacyVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// isLegacy reports whether a buyer's session is of a version that has sessions.
func isLegacy(session *mcp.ServerSession) bool {
	if session == nil {
		return false
	}
	said := session.InitializeParams()
	return said != nil && said.ProtocolVersion < sessionlessVersion
}

// noteVersions is the SDK sending middleware that finds upstream's newest version that has sessions in the
// answer to server/discover, where upstream has newer ones, too.
func (f *Proxy) noteVersions(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		answer, err := next(ctx, method, request)
		if said, ok := answer.(*mcp.DiscoverResult); ok && err == nil && f.server == nil {
			for _, version := range said.SupportedVersions {
				if slices.Contains(legacyVersions, version) {
					f.legacy = max(f.legacy, version)
				}
			}
		}
		return answer, err
	}
}

// findLegacy returns upstream's capabilities in its newest version that has sessions, and clears f.legacy
// where there is none. A server over HTTP may list such versions and yet keep no sessions, as the Go SDK's
// does: there it could ask nobody anything.
func (f *Proxy) findLegacy(ctx context.Context, upstream *mcp.InitializeResult) *mcp.ServerCapabilities {
	switch {
	case upstream == nil:
		return nil
	case upstream.ProtocolVersion < sessionlessVersion:
		f.legacy = upstream.ProtocolVersion
	case f.legacy != "" && f.URL != "":
		self := &mcp.Implementation{Name: "x402-wallet paywall", Version: f.Version}
		client := mcp.NewClient(self, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
		session, err := client.Connect(ctx, f.transport(),
			&mcp.ClientSessionOptions{ProtocolVersion: f.legacy})
		if err == nil {
			defer func() { _ = session.Close() }()
		}
		if err != nil || session.ID() == "" {
			f.legacy = ""
			return nil
		}
		return session.InitializeResult().Capabilities
	}
	return upstream.Capabilities
}
