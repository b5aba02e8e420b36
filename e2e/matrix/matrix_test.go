// Package matrix pays in every way in every set-up of the wallet, by the real program and with parts that are
// not ours: a first and a second purchase, an answer that is lost, a wallet that is killed, a budget that is
// used up.
//
// What must stay true: the records of the chains and of the sellers judge each cell. Another way to pay is an
// entry of ways, another set-up one of setups.
package matrix

import (
	"flag"
	"os"
	"testing"
	"time"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/pgtest"
)

var whole = flag.Bool("whole", false, "every cell, and not the first of the default set-up alone")

func TestMain(m *testing.M) {
	code := pgtest.Main(m).Run()
	testlab.Stop()
	testworld.RemoveBuild()
	os.Exit(code)
}

// impossible are the ways that a set-up cannot pay in, how a purchase is answered there, and why.
var impossible = []struct{ setup, way, answer, why string }{
	{"unlock agent", "Nuwa", "WALLET_LOCKED", "the unlock agent cannot tell what a voucher of Nuwa's is for"},
	{"account of a team", "vault", "INSUFFICIENT_FUNDS", "vaults are the wallet's own account's"},
	{"account of a team", "allowance", "INSUFFICIENT_FUNDS", "likewise"},
	{"account of a team", "batch-settlement", "INVALID_REQUIREMENT", "likewise channels"},
	{"account of a team", "Nuwa", "not_paid", "likewise: the server refuses a call that shows no channel"},
}

// whyNot is how a purchase is answered where a set-up cannot pay in a way; "": it can.
func whyNot(setup setup, way way) (answer string) {
	for _, no := range impossible {
		if no.setup == setup.name && no.way == way.name {
			return no.answer
		}
	}
	return ""
}

// isChosen is which cells run without -whole, by their places in the tables: of the default set-up each way's
// first purchase.
func isChosen(setup, c int) bool { return *whole || (setup == 0 && c == 0) }

func TestMatrix(t *testing.T) {
	w := &world{t: t, lab: testlab.Start(t), bin: testworld.Build(t), doors: map[string]*door{},
		nuwa: &nuwa{}}
	began, cells, refused := time.Now(), 0, 0
	for i, setup := range setups {
		for _, way := range ways {
			t.Run(setup.name+"/"+way.name, func(t *testing.T) {
				if !isChosen(i, 0) {
					t.Skip("make matrix runs it")
				}
				s := newStand(t, w, way, setup)
				if answer := whyNot(setup, way); answer != "" {
					s.isAnswered(answer)
					refused++
					return
				}
				for k, c := range cases {
					if isChosen(i, k) {
						cells++
						s.cell(c.name, c.run)
					}
				}
			})
		}
	}
	t.Logf("%d cells in %.0f s; %d pairs of a set-up and a way are impossible, and refused", cells,
		time.Since(began).Seconds(), refused)
}
