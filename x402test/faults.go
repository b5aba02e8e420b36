package x402test

// Fault is a way in which a party of the sandbox misbehaves. What is on the chains stays true all the same.
type Fault string

// The seller's, when a payment is presented to it and nothing is settled.
const (
	SellerAsksAgain    Fault = "seller asks again"    // 402 as if no payment had come
	SellerRaises       Fault = "seller raises"        // 402 asking twice the price
	SellerFailsBefore  Fault = "seller fails before"  // 500
	SellerFalseReceipt Fault = "seller false receipt" // serves with an invented receipt
	SellerRedirects    Fault = "seller redirects"     // 307 to another origin
	SellerHangsBefore  Fault = "seller hangs before"  // never answers
	SellerCutsBefore   Fault = "seller cuts before"   // cuts the connection
)

// The seller's, after it was paid.
const (
	SellerFails          Fault = "seller fails"           // 500 with the receipt
	SellerFailsMute      Fault = "seller fails mute"      // 500 without a receipt
	SellerHangs          Fault = "seller hangs"           // never answers
	SellerCuts           Fault = "seller cuts"            // cuts the answer in its middle
	SellerSlow           Fault = "seller slow"            // serves after Options.Delay
	SellerOmitsReceipt   Fault = "seller omits receipt"   // serves without a receipt
	SellerGarblesReceipt Fault = "seller garbles receipt" // serves with a receipt that is no JSON
	SellerWrongReceipt   Fault = "seller wrong receipt"   // serves with an invented receipt
)

// The facilitator's, at /settle but for the first and the last.
const (
	FacilitatorRefusesVerify Fault = "facilitator refuses verify" // isValid false
	FacilitatorRefuses       Fault = "facilitator refuses"        // success false; nothing settled
	FacilitatorFails         Fault = "facilitator fails"          // HTTP 500; nothing settled
	FacilitatorCutsBefore    Fault = "facilitator cuts before"    // cuts the connection; nothing settled
	FacilitatorCutsAfter     Fault = "facilitator cuts after"     // settles, then cuts the connection
	FacilitatorLies          Fault = "facilitator lies"           // invents a transaction; nothing settled
	FacilitatorPending       Fault = "facilitator pending"        // settles, but answers settlement_pending
	FacilitatorNeverLands    Fault = "facilitator never lands"    // the same; nothing settled
	FacilitatorDown          Fault = "facilitator down"           // cuts every connection
)

// The nodes'.
const (
	EVMNodeDown      Fault = "evm node down"      // HTTP 503
	EVMNodeElsewhere Fault = "evm node elsewhere" // says that it serves another chain
	EVMNodeForgets   Fault = "evm node forgets"   // knows no payment
	SolanaNodeDown   Fault = "solana node down"   // HTTP 503
)
