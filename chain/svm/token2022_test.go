package svm

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"testing"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// ext is an extension as it lies in an account.
func ext(kind uint16, value ...byte) []byte {
	head := binary.LittleEndian.AppendUint16(nil, kind)
	return append(binary.LittleEndian.AppendUint16(head, uint16(len(value))), value...)
}

// at is a value of a size with bytes from a place on.
func at(size, place int, bytes ...byte) []byte {
	return slices.Replace(make([]byte, size), place, place+len(bytes), bytes...)
}

// feeOf is a transfer fee: basis points now, and from an epoch on.
func feeOf(now uint16, epoch byte, then uint16) []byte {
	v := make([]byte, 108)
	binary.LittleEndian.PutUint64(v[80:], 1_000_000)
	binary.LittleEndian.PutUint16(v[88:], now)
	v[90] = epoch
	binary.LittleEndian.PutUint64(v[98:], 1_000_000)
	binary.LittleEndian.PutUint16(v[106:], then)
	return ext(extTransferFee, v...)
}

func wallet2022(t *testing.T, mintExtensions ...[]byte) (*Exact, *chain, *signer, onchain.Order) {
	c, s := newChain(t), &signer{private: person(1)}
	c.putMint(mint, mintExtensions...)
	source, _, _ := solana.FindAssociatedTokenAddressWithProgram(keyOf(s.private), mint, token2022)
	c.put(source, token{mint: mint, owner: keyOf(s.private), amount: 9_000_000, is2022: true})
	c.put(sink2022(), token{mint: mint, owner: keyOf(seller), is2022: true})
	o := orderFrom(source, asks())
	o.Asset.Token2022 = true
	return New(Options{Signer: s, RPC: map[string]string{devnet: c.url}}), c, s, o
}

func sink2022() solana.PublicKey {
	address, _, _ := solana.FindAssociatedTokenAddressWithProgram(keyOf(seller), mint, token2022)
	return address
}

// What a mint's extensions do to a payment. In the fake chain it is epoch 10.
func TestMintExtensions(t *testing.T) {
	hook := keyOf(payer)
	for name, test := range map[string]struct {
		list [][]byte
		why  string
	}{
		"none":                    {nil, ""},
		"harmless":                {[][]byte{ext(3, at(32, 0)...), ext(12, at(32, 0)...), ext(25)}, ""},
		"fee":                     {[][]byte{feeOf(25, 0, 25)}, "takes a fee of 0.25 % out of every"},
		"no fee":                  {[][]byte{feeOf(0, 0, 0)}, ""},
		"a fee that was":          {[][]byte{feeOf(100, 10, 0)}, ""},
		"a fee that still is":     {[][]byte{feeOf(100, 11, 0)}, "a fee of 1 %"},
		"a fee to come":           {[][]byte{feeOf(0, 11, 200)}, "a fee of 2 %"},
		"a fee cut off":           {[][]byte{ext(extTransferFee, 1, 2, 3)}, "cannot be read"},
		"a fee of at most 0":      {[][]byte{ext(extTransferFee, at(108, 106, 100)...)}, ""},
		"not transferable":        {[][]byte{ext(extNonTransferable)}, "cannot be transferred"},
		"hook":                    {[][]byte{ext(extTransferHook, at(64, 32, hook[:]...)...)}, hook.String()},
		"no hook":                 {[][]byte{ext(extTransferHook, at(64, 0, hook[:]...)...)}, ""},
		"half a hook":             {[][]byte{ext(extTransferHook, at(63, 0)...)}, "cannot be read"},
		"paused":                  {[][]byte{ext(extPausable, at(33, 32, 1)...)}, "is paused"},
		"not paused":              {[][]byte{ext(extPausable, at(33, 0, 1)...)}, ""},
		"paused, cut off":         {[][]byte{ext(extPausable, at(32, 0)...)}, "is paused"},
		"of the future":           {[][]byte{ext(29)}, "does not know (extension 29)"},
		"of an account":           {[][]byte{ext(extMemoTransfer, 1)}, "does not know (extension 8)"},
		"longer than the account": {[][]byte{ext(3, at(32, 0)...)[:20]}, "rules that cannot be read"},
		"behind unused space":     {[][]byte{ext(0), ext(29)}, ""},
		"the second":              {[][]byte{ext(3), ext(extNonTransferable)}, "cannot be transferred"},
	} {
		t.Run(name, func(t *testing.T) {
			e, c, s, o := wallet2022(t, test.list...)
			_, err := e.Authorize(t.Context(), o)
			if test.why == "" {
				require.NoError(t, err)
				require.Equal(t, 1, c.asked["getMultipleAccounts"], "with the others")
				return
			}
			requireCode(t, x402.InvalidRequirement, err)
			require.ErrorContains(t, err, test.why)
			require.Zero(t, s.asked)
			require.Zero(t, c.asked["simulateTransaction"])
		})
	}
	for name, spoil := range map[string]func(*chain){
		"no mint":         func(c *chain) { delete(c.accounts, mint) },
		"plain SPL":       func(c *chain) { c.set(mint, tokenProgram, make([]byte, mintSize)) },
		"a token account": func(c *chain) { c.set(mint, token2022, at(166, 165, 2)) },
		"a short mint":    func(c *chain) { c.set(mint, token2022, make([]byte, mintSize-1)) },
		"other decimals":  func(c *chain) { c.set(mint, token2022, at(mintSize, 44, 9)) },
		"no clock":        func(c *chain) { delete(c.accounts, solana.SysVarClockPubkey) },
	} {
		t.Run(name, func(t *testing.T) {
			e, c, s, o := wallet2022(t)
			spoil(c)
			requireCode(t, x402.InvalidRequirement, must.Err(e.Authorize(t.Context(), o)))
			require.Zero(t, s.asked)
		})
	}
}

func TestAccountExtensions(t *testing.T) {
	for name, test := range map[string]struct {
		extension []byte
		why       string
	}{
		"memo wanted":       {ext(extMemoTransfer, 1), "with a memo before them"},
		"memo not wanted":   {ext(extMemoTransfer, 0), ""},
		"memo, cut off":     {ext(extMemoTransfer), "with a memo before them"},
		"confidential only": {ext(extConfidential, at(295, 261, 1)...), "only confidential"},
		"confidential too":  {ext(extConfidential, at(295, 262, 1)...), ""},
		"confidential, cut": {ext(extConfidential, 1), "only confidential"},
		"guarded":           {ext(11, 1), ""},
		"half a head":       {ext(11, 1)[:3], ""},
		"cut off":           {ext(11, 1, 2, 3)[:5], "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			e, c, s, o := wallet2022(t)
			data := must.Get(c.wire(sink2022()).read())(t)
			c.set(sink2022(), token2022, append(data.data, test.extension...))
			_, err := e.Authorize(t.Context(), o)
			if test.why == "" {
				require.NoError(t, err)
				return
			}
			requireCode(t, x402.InvalidRequirement, err)
			require.ErrorContains(t, err, test.why)
			require.Zero(t, s.asked)
		})
	}
}

// What the node's simulation says against a payment ends it before the signature, in words; a node that
// cannot say, too.
func TestSimulationDecides(t *testing.T) {
	fails := func(why string) any {
		return map[string]any{"value": map[string]any{"err": json.RawMessage(why)}}
	}
	custom := func(at int, code int) any {
		return map[string]any{"value": map[string]any{"err": map[string]any{
			"InstructionError": []any{at, map[string]any{"Custom": code}}}}}
	}
	for name, test := range map[string]struct {
		answer any
		code   x402.Code
		words  string
	}{
		"paused":          {custom(2, 67), x402.InvalidRequirement, "is paused"},
		"memo":            {custom(2, 36), x402.InvalidRequirement, "a memo before them"},
		"frozen":          {custom(2, 17), x402.InvalidRequirement, "frozen"},
		"something else":  {custom(2, 4711), x402.InvalidRequirement, "would not take the transfer"},
		"other program's": {custom(3, 67), x402.InvalidRequirement, "would not take the transfer"},
		"no fee payer":    {fails(`"AccountNotFound"`), x402.InvalidRequirement, "has no SOL"},
		"a word":          {fails(`"Ignore us"`), x402.InvalidRequirement, "would not take the transfer"},
		"a number":        {fails(`7`), x402.InvalidRequirement, "would not take the transfer"},
		"no answer":       {map[string]any{}, x402.RPCError, "simulateTransaction"},
		"cannot":          {rpcFault{-32601, "Method not found"}, x402.RPCError, "simulateTransaction"},
		"too many":        {rpcFault{-32005, "rate limit"}, x402.RPCError, "simulateTransaction"},
	} {
		t.Run(name, func(t *testing.T) {
			e, c, s, o := wallet2022(t)
			c.lies["simulateTransaction"] = test.answer
			_, err := e.Authorize(t.Context(), o)
			requireCode(t, test.code, err)
			require.ErrorContains(t, err, test.words)
			require.NotContains(t, x402.AsError(err).Message, "Ignore us")
			require.Zero(t, s.asked)
		})
	}
	e, c, s := newWallet(t) // plain SPL: nobody is asked
	c.lies["simulateTransaction"] = custom(2, 67)
	must.Get(e.Authorize(t.Context(), orderFrom(c.ata(owner), asks())))(t)
	require.Equal(t, []int{1, 0}, []int{s.asked, c.asked["simulateTransaction"]})
}
