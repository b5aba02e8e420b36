package vault

import (
	"bytes"
	"crypto/ecdsa"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/internal/must"
)

// TestNoSignatureMakesItFail: one signature is valid, and whatever else it is handed it says no to,
// in ERC-1271's own words.
func TestNoSignatureMakesItFail(t *testing.T) {
	seed := *seeded
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test ./e2e/vault -run TestNoSignatureMakesItFail -args -seed %d", seed)
	build := must.Get(ReadBuild(root))(t)
	tried := must.Get(signatures(Start(t, lab), build, seed, 20_000))(t)
	t.Logf("%d signatures", tried)
}

// asked is a question whether a signature is valid.
type asked struct {
	what      string
	digest    [32]byte
	signature []byte
	valid     bool
}

// signer writes cheques for a vault that is there, whose agent it is.
type signer struct {
	chain *Chain
	vault common.Address
	rule  Rule
	key   *ecdsa.PrivateKey
	now   uint64
}

const much = 1_000_000 // more than the rule lets anybody spend

// signatures asks a new vault of that build about every kind of signature, and about n that are random.
func signatures(chain *Chain, build Build, seed uint64, n int) (tried int, err error) {
	now, err := chain.now()
	if err != nil {
		return 0, err
	}
	key, err := crypto.ToECDSA(crypto.Keccak256(fmt.Appendf(nil, "signer %d", seed)))
	if err != nil {
		return 0, err
	}
	s := signer{chain: chain, key: key, rule: Rule{
		Agent: addressOf(key), PerPeriod: big.NewInt(50_000), Period: big.NewInt(3600),
		PerPayment: big.NewInt(60_000), MaxWindow: big.NewInt(600),
	}}
	create, vault := build.Create(s.rule.Agent, common.Address{1}, chain.Token, s.rule)
	s.vault, s.now = vault, now+1000
	mint := Call{From: s.rule.Agent, To: &chain.Token, Data: Data("mint(address,uint256)", vault, much)}
	setUp := Block{now + 1, []Call{mint, create}}

	all := append(s.everyKind(), s.random(rand.New(rand.NewPCG(seed, 0)), n)...)
	for len(all) > 0 {
		now, rest := all[:min(100, len(all))], all[min(100, len(all)):]
		block := Block{At: s.now}
		for _, a := range now {
			block.Calls = append(block.Calls,
				Call{From: chain.Token, To: &vault, Data: IsValid(a.digest, a.signature), Gas: 200_000})
		}
		outcomes, err := chain.Simulate([]Block{setUp, block})
		if err != nil {
			return tried, err
		}
		for i, a := range now {
			answer := [32]byte{0xff, 0xff, 0xff, 0xff}
			if a.valid {
				answer = [32]byte{0x16, 0x26, 0xba, 0x7e}
			}
			if got := outcomes[1][i]; !got.OK || !bytes.Equal(got.Result, answer[:]) {
				return tried, fmt.Errorf("%s: %t %x, digest %x, signature %x", a.what, got.OK, got.Result,
					a.digest, a.signature)
			}
		}
		tried, all = tried+len(now), rest
	}
	return tried, nil
}

func (s signer) cheque() Cheque {
	return Cheque{To: common.Address{2}, Value: big.NewInt(20_000), ValidAfter: new(big.Int),
		ValidBefore: new(big.Int).SetUint64(s.now + 60), Nonce: [32]byte{3}}
}

// asks has a cheque signed by the agent.
func (s signer) asks(what string, valid bool, c Cheque) asked {
	digest := c.Digest(s.chain.Domain, s.vault)
	return asked{what, digest, c.Wrap(Sign(digest, s.key)), valid}
}

func (s signer) everyKind() []asked {
	good := s.asks("the agent's cheque", true, s.cheque())
	return append(append(append([]asked{good}, s.limits()...), s.forms(good)...), s.others(good)...)
}

// limits are cheques at the rule's limits and one above.
func (s signer) limits() (all []asked) {
	for above := range int64(2) {
		window, whole := s.cheque(), s.cheque()
		window.ValidBefore = new(big.Int).SetUint64(s.now + 600 + uint64(above))
		whole.Value = big.NewInt(50_000 + above)
		all = append(all, s.asks("maxWindow", above == 0, window),
			s.asks("all that is available", above == 0, whole))
	}
	forever, huge := s.cheque(), s.cheque()
	forever.ValidBefore, huge.Value = largest, largest
	return append(all, s.asks("valid for ever", false, forever),
		s.asks("all money there could be", false, huge))
}

// forms are the same cheque, written otherwise than abi.encode does.
func (s signer) forms(good asked) (all []asked) {
	changed := func(what string, change func(signature []byte) []byte) {
		all = append(all, asked{what, good.digest, change(bytes.Clone(good.signature)), false})
	}
	for bit := range len(good.signature) * 8 {
		changed(fmt.Sprint("bit ", bit), func(b []byte) []byte { b[bit/8] ^= 1 << (bit % 8); return b })
	}
	for length := range len(good.signature) {
		changed(fmt.Sprint("cut to ", length), func(b []byte) []byte { return b[:length] })
	}
	for _, more := range []int{1, 31, 32, 64, 4096} {
		changed(fmt.Sprint(more, " bytes more"),
			func(b []byte) []byte { return append(b, make([]byte, more)...) })
	}
	changed("no padding", func(b []byte) []byte { return b[:7*32+65] })
	changed("the bare 65 bytes", func(b []byte) []byte { return b[7*32 : 7*32+65] })
	changed("v as 0 or 1", func(b []byte) []byte { b[9*32] -= 27; return b })
	changed("the twin with the larger s", func(b []byte) []byte {
		s := new(big.Int).SetBytes(b[8*32 : 9*32])
		sub(crypto.S256().Params().N, s).FillBytes(b[8*32 : 9*32])
		b[9*32] ^= 27 ^ 28
		return b
	})
	changed("offset beyond the end", func(b []byte) []byte { return put(b, 5, largest) })
	changed("length beyond the end", func(b []byte) []byte { return put(b, 6, largest) })
	changed("no r", func(b []byte) []byte { return put(b, 7, new(big.Int)) })
	changed("no s", func(b []byte) []byte { return put(b, 8, new(big.Int)) })

	// the agent itself signs an address with something above it, which no token would hash
	c := s.cheque()
	words := Words(s.vault, c.To, c.Value, c.ValidAfter, c.ValidBefore, c.Nonce)
	words[32] = 1
	digest := Digest712(s.chain.Domain, transferType, words)
	dirty := append(words[32:], Words(6*32, Sign(digest, s.key))...)
	return append(all, asked{"a payee of more than 20 bytes", digest, dirty, false})
}

func put(b []byte, word int, value *big.Int) []byte {
	value.FillBytes(b[word*32 : word*32+32])
	return b
}

// others are signed well, but by another, or say another thing.
func (s signer) others(good asked) (all []asked) {
	c := s.cheque()
	signed := func(what string, digest [32]byte) {
		all = append(all, asked{what, digest, c.Wrap(Sign(digest, s.key)), false})
	}
	words := Words(s.vault, c.To, c.Value, c.ValidAfter, c.ValidBefore, c.Nonce)
	signed("receiveWithAuthorization",
		Digest712(s.chain.Domain, strings.Replace(transferType, "Transfer", "Receive", 1), words))
	signed("another token's or chain's", c.Digest([32]byte{1}, s.vault))
	signed("another payer's", c.Digest(s.chain.Domain, s.rule.Agent))
	signed("nothing", [32]byte{})
	another := good
	another.what, another.valid, another.digest = "of another digest", false, [32]byte{4}
	stranger, err := crypto.GenerateKey()
	if err != nil {
		panic(err)
	}
	strangers := asked{"a stranger's", good.digest, c.Wrap(Sign(good.digest, stranger)), false}
	return append(all, another, strangers)
}

// random are n signatures of random bytes, some of them in the right form, and good ones with
// random bytes in them.
func (s signer) random(r *rand.Rand, n int) []asked {
	all := make([]asked, n)
	for i := range all {
		c := s.cheque()
		good := s.asks("random", false, c)
		signature := good.signature
		switch r.IntN(3) {
		case 0:
			signature = randomBytes(r, r.IntN(700))
		case 1:
			signature = randomBytes(r, 10*32)
			copy(signature[5*32:], Words(6*32, 65))
			copy(signature[9*32:], append([]byte{27 + byte(r.IntN(2))}, make([]byte, 31)...))
			copy(signature, good.signature[:r.IntN(6)*32])
		default:
			for range 1 + r.IntN(4) {
				at := r.IntN(len(signature))
				copy(signature[at:], randomBytes(r, 1+r.IntN(40)))
			}
			if bytes.Equal(signature, s.asks("", true, c).signature) {
				signature[0] ^= 1
			}
		}
		if r.IntN(4) == 0 {
			copy(good.digest[:], randomBytes(r, 32))
		}
		good.signature = signature
		all[i] = good
	}
	return all
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
