package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The sums of the story. The sandbox's tokens have six decimals, as money.Dollars have.
const (
	demoPurse      = money.Dollars(1_000_000) // what the wallet has on EVM
	demoDelegation = money.Dollars(10_000)    // what the owner lets it spend on Solana
	demoSession    = money.Dollars(600_000)   // the owner's session budget
	demoAsked      = money.Dollars(100_000)   // above it the owner is asked
	demoKey        = "weather-monday"
)

func (d *demo) introduce() {
	d.print("x402-wallet demo: play money, real signatures, and nothing leaves this machine.\n\nx402 in " +
		"three lines: a website answers \"402 Payment Required\" and a price, say a tenth of a cent.\nA " +
		"wallet signs a payment of exactly that and asks again. The website has a payment service " +
		"(a\n\"facilitator\") put it on a blockchain, and delivers. No account, no card, no " +
		"subscription.\n\nBelow, this demo plays an AI agent and calls the real wallet over MCP, as " +
		"Claude Code, Cursor and\nothers would. Website, payment service and blockchains are " +
		"stand-ins on 127.0.0.1 that check\nevery signature.\n")
}

func (d *demo) makeWallet(ctx context.Context) error {
	d.scene("The owner makes a wallet: x402-wallet init")
	d.line("wait", "a few seconds: whoever wants to guess passphrases shall find it slow")
	if err := d.createWallet(ctx); err != nil {
		return err
	}
	d.line("keys", "made, and encrypted with a passphrase; the agent never sees either")
	d.line("EVM", "%s holds %s of play money, and as much on Tempo", d.evm, demoPurse.Price())
	d.line("Solana", "%s holds nothing; its owner lets it spend %s from their own account", d.solana,
		demoDelegation.Price())
	d.line("rules", "at most %s a session, and above %s a person is asked; the agent cannot change them",
		demoSession.Price(), demoAsked.Price())
	return nil
}

// call asks the wallet for a path, as an agent does, and says so.
func (d *demo) call(ctx context.Context, path string,
	more map[string]any) (paid pay.Result, refused tools.Failure, err error) {
	arguments := map[string]any{"url": d.world.SellerURL + path}
	said := "x402_pay " + path
	for _, name := range []string{"maxAmount", "idempotencyKey"} {
		if value, given := more[name]; given {
			arguments[name] = value
			said += fmt.Sprintf(", %s %q", name, value)
		}
	}
	d.line("agent", "%s", said)
	var answer json.RawMessage
	isError, err := d.host.tool(ctx, "x402_pay", arguments, &answer)
	if err != nil {
		return paid, refused, err
	}
	select {
	case question := <-d.host.asked:
		d.asked++
		label := "person"
		for line := range strings.Lines(question) {
			d.line(label, "%s", strings.TrimSpace(line))
			label = ""
		}
		d.line("", "-> accepts")
	default:
	}
	if isError {
		err = json.Unmarshal(answer, &refused)
		d.line("refused", "%s: %s", refused.Error, refused.Message)
		return paid, refused, err
	}
	if err = json.Unmarshal(answer, &paid); err == nil && paid.Content != sandbox.Content(path) {
		err = fmt.Errorf("the content is %q", paid.Content)
	}
	d.line("got", "%s", paid.Content)
	return paid, refused, err
}

// buy is a call that must succeed, with this status. A payment has to be on the chain, with this receipt.
func (d *demo) buy(ctx context.Context, path string, more map[string]any, status string) (pay.Result, error) {
	got, refused, err := d.call(ctx, path, more)
	switch {
	case err != nil:
	case refused.Error != "":
		err = errors.New("it should not be refused")
	case got.Status != status:
		err = fmt.Errorf("the status is %q instead of %q", got.Status, status)
	case status == pay.StatusPaid:
		d.paid++
		d.spent += money.Dollars(sandbox.Price(path))
		err = d.receipt(got)
	}
	return got, errors.Join(err, d.settlements())
}

func (d *demo) freeCall(ctx context.Context) error {
	d.scene("The agent gets a free page")
	if _, err := d.buy(ctx, "/free", nil, pay.StatusFree); err != nil {
		return err
	}
	d.line("paid", "nothing: the website asked for nothing")
	return nil
}

func (d *demo) paidCall(ctx context.Context) error {
	d.scene("The agent buys the weather, on an EVM chain (a stand-in for Base)")
	wallet, seller := d.world.Balance(d.evm), d.world.Balance(d.world.PayToEVM)
	got, err := d.buy(ctx, "/weather", map[string]any{"maxAmount": "$0.01", "idempotencyKey": demoKey},
		pay.StatusPaid)
	if err != nil {
		return err
	}
	d.bought = got.PaymentID
	d.line("web", "402 Payment Required: %s -> the same request with a signed payment -> 200 OK", got.Price)
	d.showPaid(got)
	nowWallet, nowSeller := d.world.Balance(d.evm), d.world.Balance(d.world.PayToEVM)
	d.line("chain", "the wallet's balance %s -> %s, the website's %s -> %s", money.Dollars(wallet).Price(),
		money.Dollars(nowWallet).Price(), money.Dollars(seller).Price(), money.Dollars(nowSeller).Price())
	if wallet-nowWallet != sandbox.Price("/weather") || nowSeller-seller != sandbox.Price("/weather") {
		return errors.New("the balances moved by something else than the price")
	}
	return nil
}

func (d *demo) delegatedCall(ctx context.Context) error {
	d.scene("The agent buys the tides, on Solana, with its owner's money")
	held, left := d.world.Balance(d.account), d.world.Delegated(d.account)
	got, err := d.buy(ctx, "/solana", map[string]any{"maxAmount": "$0.01"}, pay.StatusPaid)
	if err != nil {
		return err
	}
	d.showPaid(got)
	nowHeld, nowLeft := d.world.Balance(d.account), d.world.Delegated(d.account)
	d.line("chain", "the owner's account %s -> %s", money.Dollars(held).Price(),
		money.Dollars(nowHeld).Price())
	d.line("", "what the wallet may still take from it %s -> %s", money.Dollars(left).Price(),
		money.Dollars(nowLeft).Price())
	d.line("why", "this is a delegation: the money stays in the owner's account until it is spent, and "+
		"the chain itself gives the wallet no more than the owner said, not even to a thief who has its key")
	price := sandbox.Price("/solana")
	if held-nowHeld != price || left-nowLeft != price {
		return errors.New("the account moved by something else than the price")
	}
	return nil
}

func (d *demo) tempoCall(ctx context.Context) error {
	d.scene("The agent buys the weather on Tempo, where most of MPP's sellers are (a stand-in)")
	wallet, seller := d.world.TempoBalance(d.evm), d.world.TempoBalance(d.world.PayToEVM)
	got, err := d.buy(ctx, "/tempo/weather", map[string]any{"maxAmount": "$0.01"}, pay.StatusPaid)
	if err != nil {
		return err
	}
	d.line("web", "402 with WWW-Authenticate: Payment -> the same request with a signed transfer, "+
		"which the website sends -> 200 OK")
	d.showPaid(got)
	nowWallet, nowSeller := d.world.TempoBalance(d.evm), d.world.TempoBalance(d.world.PayToEVM)
	d.line("chain", "the wallet's balance %s -> %s, the website's %s -> %s", money.Dollars(wallet).Price(),
		money.Dollars(nowWallet).Price(), money.Dollars(seller).Price(), money.Dollars(nowSeller).Price())
	price := sandbox.Price("/weather")
	d.onTempo = money.Dollars(price)
	if wallet-nowWallet != price || nowSeller-seller != price {
		return errors.New("the balances moved by something else than the price")
	}
	return nil
}

func (d *demo) showPaid(got pay.Result) {
	left := "?"
	if b := got.Budget; b != nil && b.Session != nil {
		left = b.Session.Remaining.Price()
	}
	d.line("paid", "%s in %s; %s of the session's budget is left", got.Price, got.Symbol, left)
	d.line("receipt", "%s, transaction %s", got.PaymentID, demoShort(got.TransactionSignature))
}

// demoShort is enough of a long name to know it again.
func demoShort(name string) string {
	if len(name) <= 24 {
		return name
	}
	return name[:12] + "..." + name[len(name)-8:]
}

// receipt checks that the transaction the wallet names is the one that the chain made.
func (d *demo) receipt(got pay.Result) error {
	all := d.world.Settlements()
	if last := all[len(all)-1]; last.Transaction != got.TransactionSignature || got.AmountPaid == nil ||
		got.AmountPaid.String() != fmt.Sprint(last.Amount) {
		return fmt.Errorf("the chain's transaction is %s of %d", last.Transaction, last.Amount)
	}
	return nil
}

func (d *demo) refusedByCall(ctx context.Context) error {
	d.scene("Limit 1, this call: the agent says how much a report is worth to it")
	return d.refusal(ctx, "/report", "$0.10", x402.AmountExceedsMax, money.Dollars(sandbox.Price("/report")))
}

func (d *demo) approvedCall(ctx context.Context) error {
	d.scene("Limit 2, a person: the report is worth it, and costs more than the agent may pay alone")
	got, err := d.buy(ctx, "/report", map[string]any{"maxAmount": "$0.50", "idempotencyKey": "report"},
		pay.StatusPaid)
	if err != nil {
		return err
	}
	d.showPaid(got)
	d.line("why", "the host showed this to its person, who accepted this one payment; without a host that "+
		"can ask, it waits for x402-wallet approve")
	if d.asked != 1 {
		return fmt.Errorf("the person was asked %d times instead of once", d.asked)
	}
	return nil
}

func (d *demo) refusedByOwner(ctx context.Context) error {
	d.scene("Limit 3, the owner's budget: the agent would pay any price for another report")
	return d.refusal(ctx, "/report", "$1000", x402.BudgetExceeded, demoSession-d.spent)
}

func (d *demo) refusedByChain(ctx context.Context) error {
	d.scene("Limit 4, the chain: a sea chart costs more than the owner delegated on Solana")
	return d.refusal(ctx, "/atlas", "$0.05", x402.DelegationExhausted,
		money.Dollars(d.world.Delegated(d.account)))
}

// refusal is a call that must be refused, before anything is signed, with the sum that would have
// passed.
func (d *demo) refusal(ctx context.Context, path, most string, code x402.Code, passes money.Dollars) error {
	signed := d.world.Signatures()
	_, refused, err := d.call(ctx, path, map[string]any{"maxAmount": most})
	if err != nil {
		return err
	}
	d.line("hint", "%s", refused.Hint)
	d.line("paid", "nothing: nothing was signed")
	switch {
	case refused.Error != code:
		return fmt.Errorf("it should be refused with %s", code)
	case !strings.Contains(refused.Message+refused.Hint, passes.Price()):
		return fmt.Errorf("it should name what would have passed, %s", passes.Price())
	case refused.Spent != "0" || d.world.Signatures() != signed:
		return errors.New("something was signed")
	}
	return d.settlements()
}

func (d *demo) repeatedCall(ctx context.Context) error {
	d.scene("The answer got lost? The agent makes the same call again")
	asked, _ := d.world.Requests("/weather")
	got, err := d.buy(ctx, "/weather", map[string]any{"maxAmount": "$0.01", "idempotencyKey": demoKey},
		pay.StatusReplayed)
	if err != nil {
		return err
	}
	d.line("paid", "nothing: the wallet kept what it bought in step 3 (%s)", got.PaymentID)
	again, _ := d.world.Requests("/weather")
	if got.PaymentID != d.bought || again != asked {
		return errors.New("it is not the first purchase's answer")
	}
	return nil
}

func (d *demo) history(ctx context.Context) error {
	d.scene("What was bought: x402_history")
	var out tools.HistoryOut
	if isError, err := d.host.tool(ctx, "x402_history", map[string]any{}, &out); err != nil || isError {
		return fmt.Errorf("x402_history failed: %w", err)
	}
	for _, row := range out.Transactions {
		at, _ := time.Parse(time.RFC3339, row.Timestamp)
		d.line(at.Local().Format("15:04:05"), "%-7s %-14s %-8s %s", row.Price, x402.NetworkName(row.Network),
			row.Status, strings.TrimPrefix(row.URL, d.world.SellerURL))
	}
	d.line("total", "$%s in USDC, $%s in pathUSD", out.Totals["USDC"], out.Totals["pathUSD"])
	isRight := out.Totals["USDC"] == (d.spent-d.onTempo).String() &&
		out.Totals["pathUSD"] == d.onTempo.String()
	if out.Count != d.paid || !isRight {
		return fmt.Errorf("there should be %d payments of together %s", d.paid, d.spent.Price())
	}
	return nil
}

// books compares with what the chains themselves wrote down.
func (d *demo) books(context.Context) error {
	d.scene("The chains' own books agree")
	var sum uint64
	for _, s := range d.world.Settlements() {
		sum += s.Amount
	}
	d.line("chains", "%d payments, %s; the wallet signed %d", len(d.world.Settlements()),
		money.Dollars(sum).Price(), d.world.Signatures())
	if d.world.Signatures() != d.paid || money.Dollars(sum) != d.spent {
		return errors.New("they differ from the wallet's")
	}
	return nil
}

func (d *demo) settlements() error {
	if got := len(d.world.Settlements()); got != d.paid {
		return fmt.Errorf("the chains made %d payments instead of %d", got, d.paid)
	}
	return nil
}

// demoSelf is this program as a person here can type it: by name where the PATH leads to it, else
// by its path.
func demoSelf(program string) string {
	const name = "x402-wallet"
	if found, err := exec.LookPath(name); err == nil && same(found, program) {
		return name
	}
	if dir, err := os.Getwd(); err == nil {
		if near, err := filepath.Rel(dir, program); err == nil && filepath.IsLocal(near) {
			program = "." + string(filepath.Separator) + near
		}
	}
	return shellWord(program)
}

func (d *demo) whatNext(keep string) {
	d.print("\nEverything worked in %.1f s. Now with your own wallet:\n\n", time.Since(d.started).Seconds())
	self := demoSelf(d.program)
	steps := [][2]string{
		{self + " init", "make it; your limits are in its config.toml"},
		{self + " address", "fund it: a few dollars of USDC on Base or Solana"},
		{self + " install claude-code", "give it to Claude Code (install alone lists others)"},
		{self + " history", "see what was bought"},
	}
	for _, step := range steps {
		d.print("  %-*s  %s\n", len(steps[2][0]), step[0], step[1])
	}
	if keep != "" {
		d.print("\nThe demo's wallet is in %s; look around with\n  X402_WALLET_HOME=%s %s history\nIts "+
			"passphrase is in %s.\n", d.home(), d.home(), self, filepath.Join(d.dir, "passphrase"))
	}
}
