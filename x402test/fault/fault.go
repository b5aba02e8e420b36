// Package fault names the ways in which a party of a sandbox (x402test) misbehaves.
//
// What must stay true: what is on the chains stays true all the same.
package fault

// The seller's, when a payment is presented to it and nothing is settled.
const (
	SellerAsksAgain    = "seller asks again"    // 402 as if no payment had come
	SellerRaises       = "seller raises"        // 402 asking twice the price
	SellerFailsBefore  = "seller fails before"  // 500
	SellerFalseReceipt = "seller false receipt" // serves with an invented receipt
	SellerRedirects    = "seller redirects"     // 307 to another origin, which would take the payment
	SellerHangsBefore  = "seller hangs before"  // never answers
	SellerCutsBefore   = "seller cuts before"   // cuts the connection
)

// The seller's, after it was paid.
const (
	SellerFails          = "seller fails"           // 500 with the receipt
	SellerFailsMute      = "seller fails mute"      // 500 without a receipt
	SellerHangs          = "seller hangs"           // never answers
	SellerCuts           = "seller cuts"            // cuts the answer in its middle
	SellerSlow           = "seller slow"            // serves after Options.Delay
	SellerOmitsReceipt   = "seller omits receipt"   // serves without a receipt
	SellerGarblesReceipt = "seller garbles receipt" // serves with a receipt that is no JSON
	SellerWrongReceipt   = "seller wrong receipt"   // serves with an invented receipt
)

// The facilitator's, at /settle but for the first and the last.
const (
	FacilitatorRefusesVerify = "facilitator refuses verify" // isValid false
	FacilitatorRefuses       = "facilitator refuses"        // success false; nothing settled
	FacilitatorFails         = "facilitator fails"          // HTTP 500; nothing settled
	FacilitatorCutsBefore    = "facilitator cuts before"    // cuts the connection; nothing settled
	FacilitatorCutsAfter     = "facilitator cuts after"     // settles, then cuts the connection
	FacilitatorLies          = "facilitator lies"           // invents a transaction; nothing settled
	FacilitatorPending       = "facilitator pending"        // settles, but answers settlement_pending
	FacilitatorNeverLands    = "facilitator never lands"    // the same; nothing settled
	FacilitatorDown          = "facilitator down"           // cuts every connection
)

// The nodes'.
const (
	EVMNodeDown      = "evm node down"      // HTTP 503
	EVMNodeElsewhere = "evm node elsewhere" // says that it serves another chain
	EVMNodeForgets   = "evm node forgets"   // knows no payment: nonces unused, no logs, no receipts
	SolanaNodeDown   = "solana node down"   // HTTP 503
)
