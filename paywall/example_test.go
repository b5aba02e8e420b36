package paywall_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/facilitator"
	"x402-wallet/paywall"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402test"
)

type question struct {
	City string `json:"city"`
}

// A server with a free tool and a paid one. The facilitator here is play; with a real one only its
// address differs. The book makes one payment buy one run, across restarts and processes too.
func Example() {
	ctx := context.Background()
	world, err := x402test.Start(x402test.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer world.Close()
	home, err := os.MkdirTemp("", "shop") // of a real shop a folder that stays
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)
	sold, err := book.Make(ctx, book.Place{Home: home})
	if err != nil {
		log.Fatal(err)
	}
	defer sold.Close()

	charging, err := paywall.New(paywall.Options{
		Tools: []paywall.Tool{{Name: "forecast", Description: "Tomorrow's weather", Accepts: []paywall.Option{
			{Network: "base-sepolia", PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Price: "0.01"},
			{Network: "solana-devnet", PayTo: world.PayToSolana, Price: "0.01"},
		}}},
		Facilitators: facilitator.New(facilitator.Options{List: []facilitator.Facilitator{{Name: "play",
			URL: world.FacilitatorURL}}}),
		Store: sold,
		Hooks: paywall.Hooks{AfterSettle: func(_ context.Context, sale *paywall.Sale) {
			log.Printf("%s paid %s for %s", sale.Payer, sale.Price, sale.Tool)
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, warning := range charging.Check(ctx) {
		log.Print(warning)
	}

	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "now"}, func(context.Context, *mcp.CallToolRequest,
		question) (*mcp.CallToolResult, any, error) {
		return nil, map[string]string{"sky": "clear"}, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "forecast"}, func(ctx context.Context, _ *mcp.CallToolRequest,
		q question) (*mcp.CallToolResult, any, error) {
		sale := paywall.FromContext(ctx) // who pays, and what
		return nil, map[string]string{"city": q.City, "sky": "rain", "for": sale.Price}, nil
	})
	charging.Protect(server) // and server.Run, or mcp.NewStreamableHTTPHandler

	near, far := mcp.NewInMemoryTransports()
	there, err := server.Connect(ctx, near, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer there.Wait()
	client, err := mcp.NewClient(&mcp.Implementation{Name: "buyer", Version: "1"}, nil).Connect(ctx, far, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for _, tool := range []string{"now", "forecast"} {
		answer, err := client.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: question{"Lisbon"}})
		if err != nil {
			log.Fatal(err)
		}
		asked, _ := answer.StructuredContent.(map[string]any)
		fmt.Println(tool, answer.IsError, asked["error"], asked["sky"])
	}
	fmt.Println(x402.Title("eip155:84532"), charging.Prices()["forecast"])
	// Output:
	// now false <nil> clear
	// forecast true Payment required to access this resource <nil>
	// Base Sepolia (eip155:84532) $0.01
}
