package books

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// MaxSeed bounds the seed's file: it rewrote the whole of it with every payment, so it is small.
const MaxSeed = 32 << 20

// ReadSeed reads the seed's .x402-history.json (reference/seed-systems.md §1): an array of
// payments. A file with anything in it that is none is refused as a whole.
func ReadSeed(text []byte) ([]history.Imported, error) {
	var list []struct {
		Timestamp, Signature, URL, Amount, Asset, PayTo, Network, Facilitator, Method string
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, errors.New("it is not the array of payments that x402-solana-mcp writes")
	}
	out := make([]history.Imported, 0, len(list))
	for n, p := range list {
		at, err := time.Parse(time.RFC3339, p.Timestamp)
		if err != nil {
			return nil, fmt.Errorf("payment %d has no time", n+1)
		}
		amount, err := money.ParseAmount(p.Amount)
		if err != nil {
			return nil, fmt.Errorf("payment %d has no amount in atomic units", n+1)
		}
		network, ok := x402.Network(p.Network)
		if !ok {
			return nil, fmt.Errorf("payment %d names a network that is not known", n+1)
		}
		if p.URL == "" || len(p.URL) > 8192 || p.Signature == "" || len(p.Signature) > 200 {
			return nil, fmt.Errorf("payment %d has no URL or no signature", n+1)
		}
		out = append(out, history.Imported{
			At: at.UTC(), Transaction: p.Signature, Method: p.Method, URL: p.URL, Network: network,
			Asset: p.Asset, Amount: amount, PayTo: p.PayTo, Facilitator: p.Facilitator,
		})
	}
	return out, nil
}
