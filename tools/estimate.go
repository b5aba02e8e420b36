package tools

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"x402-wallet/pay"
	"x402-wallet/x402"
)

// EstimateIn is what x402_estimate_cost takes.
type EstimateIn struct {
	URL     string            `json:"url" jsonschema:"the https URL to ask"`
	Method  string            `json:"method,omitempty" jsonschema:"default GET"`
	Headers map[string]string `json:"headers,omitempty" jsonschema:"request headers"`
	Body    string            `json:"body,omitempty" jsonschema:"request body"`
}

func (EstimateIn) shape(p map[string]*jsonschema.Schema) { p["method"].Enum = methods }

const estimateDescription = `Ask what a URL costs, without paying: every option with its price, whether this wallet can pay it and why not, ` +
	`and which one x402_pay would choose. The request is sent once, unpaid; at a free URL it has then been made.`

// Estimate asks a seller for its price. Its error is an *x402.Error.
func (w *Wallet) Estimate(ctx context.Context, in EstimateIn) (pay.Estimate, error) {
	if in.URL == "" {
		return pay.Estimate{}, missing("url")
	}
	request, err := httpRequest(in.URL, in.Method, in.Headers, in.Body)
	if err != nil {
		return pay.Estimate{}, err
	}
	return w.EstimateRequest(ctx, pay.Request{Request: request})
}

// EstimateRequest asks what a purchase would cost, of either kind. Its error is an *x402.Error.
func (w *Wallet) EstimateRequest(ctx context.Context, q pay.Request) (pay.Estimate, error) {
	out, err := w.Engine.Estimate(ctx, q)
	if err != nil {
		return pay.Estimate{}, withCode(x402.EstimateFailed, "the price could not be asked for", err)
	}
	return out, nil
}
