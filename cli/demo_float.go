package cli

import (
	"context"
	"errors"
	"fmt"

	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/tools"
	"x402-wallet/x402/money"
)

// The owner's money on EVM, of which the agent takes a little at a time: a float.
const (
	demoApproved = money.Dollars(100_000) // what the owner lets it take
	demoFloat    = money.Dollars(20_000)  // at a time
	demoGas      = 1_000_000_000_000_000  // wei that the agent has: 0.001 of the network's coin
)

func (d *demo) paidFromAFloat(ctx context.Context) error {
	d.scene("The owner keeps their money on EVM, and the agent takes a little at a time (a float)")
	settled, owners := len(d.world.Settlements()), d.world.Balance(d.world.OwnerEVM)
	d.world.Empty(d.evm)
	d.world.Allow(d.evm, uint64(demoApproved))
	d.line("owner", "nothing of the wallet's own is left on this chain; %s let it take %s out of their "+
		"account, %s at a time", d.world.OwnerEVM, demoApproved.Price(), demoFloat.Price())
	var spent uint64
	for i, key := range []string{"weather-tuesday", "weather-wednesday"} {
		got, err := d.buy(ctx, "/weather", map[string]any{"maxAmount": "$0.01", "idempotencyKey": key},
			pay.StatusPaid)
		if err != nil {
			return err
		}
		d.showPaid(got)
		spent += sandbox.Price("/weather")
		has, left := d.world.Balance(d.evm), d.world.Allowed(d.evm)
		lost := owners - d.world.Balance(d.world.OwnerEVM)
		d.line("chain", "%s came out of the owner's account, %s is left at the wallet's; it may still take %s",
			money.Dollars(lost).Price(), money.Dollars(has).Price(), money.Dollars(left).Price())
		if lost != uint64(demoFloat) || has != lost-spent || left != uint64(demoApproved)-lost {
			return errors.New("one float should have been taken, and the price paid out of it")
		}
		if err := errors.Join(d.settlements(settled+i+1), d.receipt(got)); err != nil {
			return err
		}
	}
	d.line("gas", "%s of the network's coin, for one transaction of the wallet's own",
		money.NewAmount(demoGas-d.world.Gas(d.evm)).Units(18))
	d.line("why", "to a thief of the wallet's key the chain gives what was approved and no more; how much "+
		"the wallet takes at a time, and what gas that may cost, is in the owner's rules")
	return d.oneFloat(ctx)
}

// oneFloat checks that the wallet made one transaction, and that its history has it as the chain does.
func (d *demo) oneFloat(ctx context.Context) error {
	mined, shown := d.world.Transactions(d.evm)
	pulls := d.world.Pulls()
	if mined != 1 || shown != 1 || len(pulls) != 1 {
		return fmt.Errorf("the wallet made %d transactions, %d of them in blocks, and took %d floats", shown,
			mined, len(pulls))
	}
	var out tools.HistoryOut
	if isError, err := d.host.tool(ctx, "x402_history", map[string]any{}, &out); err != nil || isError {
		return fmt.Errorf("x402_history failed: %w", err)
	}
	moved := money.NewAmount(uint64(demoFloat)).Units(6)
	for _, row := range out.Transactions {
		if row.TransactionSignature == pulls[0].Transaction && row.Moved == moved && row.Price == "$0.00" {
			return nil
		}
	}
	return errors.New("the history has no such float")
}
