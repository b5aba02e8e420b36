package cli

import (
	"github.com/spf13/cobra"

	"x402-wallet/wallet"
)

type addressLine struct {
	Chain   string `json:"chain"`
	Address string `json:"address"`
}

func addressLines(keys *wallet.Wallet) []addressLine {
	solana, evm := keys.Addresses()
	return []addressLine{{Chain: wallet.ChainSolana, Address: solana}, {Chain: wallet.ChainEVM, Address: evm}}
}

func title(chain string) string {
	if chain == wallet.ChainEVM {
		return "EVM (Base and other EVM networks)"
	}
	return "Solana"
}

// addressCommand needs no passphrase: addresses are in the keystore's header, and are checked
// against the keys whenever these are decrypted.
func (p *Program) addressCommand(ui *ui) *cobra.Command {
	var qr bool
	cmd := &cobra.Command{
		Use: "address", Short: "Show the addresses to fund", Args: wants(),
		Long: "Show the wallet's addresses: where its money arrives. Send USDC; ETH or SOL is not needed.",
		RunE: func(*cobra.Command, []string) error {
			keys, err := wallet.Open(p.Home)
			if err != nil {
				return err
			}
			defer func() { _ = keys.Close() }()
			list := addressLines(keys)
			if ui.json {
				return ui.printJSON(map[string]any{"addresses": list})
			}
			if qr {
				ui.addresses(list)
				return nil
			}
			var rows [][]string
			for _, a := range list {
				rows = append(rows, []string{title(a.Chain), a.Address})
			}
			ui.table(nil, rows)
			return nil
		},
	}
	cmd.Flags().BoolVar(&qr, "qr", false, "with QR codes")
	return cmd
}

// addresses prints each with its QR code.
func (u *ui) addresses(list []addressLine) {
	for _, a := range list {
		u.say("%s\n  %s\n", title(a.Chain), a.Address)
		u.qr(a.Address)
		u.say("")
	}
}
