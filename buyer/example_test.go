package buyer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/buyer"
	"x402-wallet/internal/sandbox"
	"x402-wallet/money"
)

// A program that calls a paid tool. The shop and the chains are play; with real ones only the addresses differ.
func ExampleWrap() {
	ctx := context.Background()
	world, err := sandbox.Start(sandbox.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer world.Close()
	onEVM, onSolana, err := signers(world) // evm.New and svm.New with the keys of wallet.Open
	if err != nil {
		log.Fatal(err)
	}
	session, err := newShop(world).open(ctx) // mcp.Client.Connect
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	most, _ := money.ParseDollars("0.01")
	paying, err := buyer.Wrap(session, buyer.Options{
		Signers: []buyer.Signer{onSolana, onEVM}, // Solana first
		MaxCall: most,
		Event: func(e buyer.Event) {
			fmt.Println(e.Type, e.Name, e.Option.Price.Price(), e.Option.Asset.Symbol)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	result, err := paying.CallTool(ctx, &mcp.CallToolParams{Name: "report", Arguments: map[string]any{"about": "ships"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Content[0].(*mcp.TextContent).Text)
	// Output:
	// attempt report $0.001 USDC
	// success report $0.001 USDC
	// the report
}
