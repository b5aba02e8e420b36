package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/internal/child"
	"x402-wallet/internal/config/environ"
	"x402-wallet/wallet"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/terminal"
	"x402-wallet/x402"
)

type unlockOut struct {
	Until string `json:"until"` // RFC 3339, UTC: at the latest
	Idle  string `json:"idle"`  // earlier when nothing is signed for this long
	PID   int    `json:"pid"`
}

func (p *Program) unlockCommand(ui *ui) *cobra.Command {
	var source passphraseSource
	var foreground, behind bool
	cmd := &cobra.Command{
		Use: "unlock", Short: "Let a process hold the key, so that the agent can pay", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			passphrase := ui.byPerson(source.or(ui.asking(terminal.Ask("Passphrase: "))), byFlags)
			if behind {
				passphrase = child.ReceiveSecret
			}
			if foreground {
				return p.HoldKeys(cmd.Context(), passphrase, func(until time.Time, idle time.Duration) {
					_ = ui.unlocked(unlockOut{Until: until.UTC().Format(time.RFC3339), Idle: idle.String(),
						PID: os.Getpid()})
				})
			}
			running, err := p.unlockBehind(cmd.Context(), ui, passphrase)
			if err == nil {
				err = ui.unlocked(running)
			}
			if err == nil {
				p.noteSigners(cmd.Context(), ui)
			}
			return err
		},
	}
	source.add(cmd, "", "the passphrase")
	cmd.Flags().BoolVar(&foreground, "foreground", false,
		"hold the key in this process instead of one in the background")
	cmd.Flags().BoolVar(&behind, handedOver, false, "")
	_ = cmd.Flags().MarkHidden(handedOver)
	return cmd
}

func (u *ui) unlocked(out unlockOut) error {
	return u.answerLine(out, "unlocked until %s UTC at the latest, or until nothing was signed for %s; "+
		"x402-wallet lock ends it", moment(out.Until), out.Idle)
}

// signersTime is how long unlock looks at the signers.
const signersTime = 15 * time.Second

// noteSigners says which signers of the rules, which are sealed, could not sign now: the wallet is unlocked
// all the same.
func (p *Program) noteSigners(ctx context.Context, ui *ui) {
	rules, err := p.Rules()
	if err != nil || len(rules.Signers) == 0 {
		return
	}
	defer ui.waiting("asking the signers")()
	ctx, cancel := context.WithTimeout(ctx, signersTime)
	defer cancel()
	signers := p.SignersByChain(rules)
	for _, chain := range slices.Sorted(maps.Keys(signers)) {
		s := signers[chain]
		if err := s.Check(ctx); err != nil {
			name, _ := s.Account()
			ui.warn([]string{fmt.Sprintf("the signer %s could not sign now: %s", name,
				x402.AsError(err).Message)})
		}
	}
}

// handedOver is the option of the process in the background, which is given the passphrase by the one
// that started it.
const handedOver = "handed-over"

// unlockBehind starts this program again in the background, hands the passphrase to it, and waits
// until it says that it can be asked, or why not.
func (p *Program) unlockBehind(ctx context.Context, ui *ui,
	passphrase wallet.Passphrase) (out unlockOut, err error) {
	keys, err := wallet.Open(p.Home) // whatever is wrong with it is said before a passphrase is typed
	if err != nil {
		return out, err
	}
	defer func() { _ = keys.Close() }()
	if err := client.Free(ctx, p.Home); err != nil {
		return out, err
	}
	if !child.CanReexec {
		return out, x402.Errorf(x402.SetupFailed, "on this system no process in the background can "+
			"be handed the passphrase").
			WithHint("x402-wallet unlock --foreground, in a terminal that stays open")
	}
	given, err := passphrase(ctx)
	if err != nil {
		return out, err
	}
	defer clear(given)
	behind, err := child.Reexec([]string{"unlock", "--foreground", "--json", "--" + handedOver},
		environ.Own(p.Home))
	if err != nil {
		return out, err
	}
	notGiven := behind.SendSecret(ctx, given) // a process that died says why below
	defer ui.waiting("opening the keys")()
	var answer struct {
		unlockOut
		Error         x402.Code
		Message, Hint string
	}
	if err := json.NewDecoder(behind.Stdout).Decode(&answer); err != nil {
		behind.End()
		return out, errors.Join(fmt.Errorf("the unlock agent exited at once: %w", err), notGiven)
	}
	if answer.Error != "" {
		behind.End()
		return out, x402.Errorf(answer.Error, "%s", answer.Message).WithHint("%s", answer.Hint)
	}
	return answer.unlockOut, nil
}

func (p *Program) lockCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "lock", Short: "Take the key out of memory", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := owner.LockAll(p.Home); err != nil {
				return err
			}
			was, err := (&client.Client{Home: p.Home}).Lock(cmd.Context())
			if err != nil {
				return err
			}
			said := "locked"
			if !was {
				said = "no process held the key"
			}
			return ui.answerLine(map[string]bool{"locked": true, "was": was}, "%s", said)
		},
	}
}
