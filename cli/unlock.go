package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/x402"
)

// unlockOut is what unlock answers.
type unlockOut struct {
	Until string `json:"until"` // RFC 3339, UTC: at the latest
	Idle  string `json:"idle"`  // earlier when nothing is signed for this long
	PID   int    `json:"pid"`
}

func (p *Program) unlockCommand(ui *ui) *cobra.Command {
	var source passphraseSource
	var foreground bool
	cmd := &cobra.Command{
		Use: "unlock", Short: "Let a process hold the key, so that the agent can pay", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			passphrase := byPerson(source.or(ui.asking(wallet.FromTerminal("Passphrase: "))), byFlags)
			if foreground {
				return p.HoldKeys(cmd.Context(), passphrase, func(until time.Time, idle time.Duration) {
					_ = ui.unlocked(unlockOut{Until: until.UTC().Format(time.RFC3339), Idle: idle.String(),
						PID: os.Getpid()})
				})
			}
			return p.unlockBehind(cmd.Context(), ui, passphrase)
		},
	}
	source.add(cmd, "", "the passphrase")
	cmd.Flags().BoolVar(&foreground, "foreground", false,
		"hold the key in this process instead of one in the background")
	return cmd
}

func (u *ui) unlocked(out unlockOut) error {
	return u.answerLine(out, "unlocked until %s UTC at the latest, or until nothing was signed for %s; "+
		"x402-wallet lock ends it", moment(out.Until), out.Idle)
}

// unlockBehind starts this program again in the background, gives it the passphrase over a pipe,
// and waits until it says that it can be asked, or why not.
func (p *Program) unlockBehind(ctx context.Context, ui *ui, passphrase wallet.Passphrase) error {
	keys, err := wallet.Open(p.Home) // whatever is wrong with it is said before a passphrase is typed
	if err != nil {
		return err
	}
	defer func() { _ = keys.Close() }()
	if err := agent.Free(ctx, p.Home); err != nil {
		return err
	}
	given, err := passphrase(ctx)
	if err != nil {
		return err
	}
	defer clear(given)
	program, err := os.Executable()
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	//nolint:gosec,noctx // ourselves; it outlives us
	child := exec.Command(program, "unlock", "--foreground", "--json", "--passphrase-fd=3")
	child.Args[0] = os.Args[0]
	child.ExtraFiles = []*os.File{read}
	child.SysProcAttr = background()
	said, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	_ = read.Close()
	if err != nil {
		_ = write.Close()
		return fmt.Errorf("start the unlock agent: %w", err)
	}
	_, _ = write.Write(given) // a child that died says why below
	_ = write.Close()
	defer ui.waiting("opening the keys")()
	var answer struct {
		unlockOut
		Error         x402.Code
		Message, Hint string
	}
	if err := json.NewDecoder(said).Decode(&answer); err != nil {
		return errors.Join(fmt.Errorf("the unlock agent exited at once: %w", err), child.Wait())
	}
	if answer.Error != "" {
		_ = child.Wait()
		return x402.Errorf(answer.Error, "%s", answer.Message).WithHint("%s", answer.Hint)
	}
	return ui.unlocked(answer.unlockOut)
}

func (p *Program) lockCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "lock", Short: "Take the key out of memory", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := wallet.LockAll(p.Home); err != nil {
				return err
			}
			was, err := (&agent.Client{Home: p.Home}).Lock(cmd.Context())
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
