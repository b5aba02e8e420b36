package agent

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

// person is the wallet's owner at a terminal: they type what they are told to, and their passphrase where
// the program asks for it.
type person struct{ home testworld.Home }

func (p *person) key() string { return filepath.Join(p.home.User, ".config", "solana", "id.json") }

func (p *person) types(t *testing.T, command string) {
	words := must.Get(p.words(command))(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := p.home.Command(ctx, testworld.Build(t), words...)
	cmd.Env = p.home.Env(lockedOut...)
	terminal := must.Get(pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 100}))(t)
	defer terminal.Close()
	var seen strings.Builder
	buffer := make([]byte, 4096)
	for answered := 0; ; {
		n, err := terminal.Read(buffer)
		seen.Write(buffer[:n])
		asked := prompts.FindAllStringIndex(seen.String(), -1)
		for ; answered < len(asked); answered++ {
			_, _ = terminal.WriteString(answerTo(seen.String()[asked[answered][0]:asked[answered][1]]) + "\n")
		}
		if err != nil { // EIO: the program has ended
			break
		}
	}
	require.NoError(t, cmd.Wait(), "the person typed %s:\n%s", command, &seen)
}

var prompts = regexp.MustCompile(
	`(?m)^(?:New p|Old p|P)assphrase[^\n]*: |^The same again: |^[^\n]*\[[yY]/[nN]\] |^(?:Which|What) \([^)]*\)\? `)

// answerTo is what they answer. Where init offers more than a wallet, they do without for now.
func answerTo(prompt string) string {
	switch {
	case strings.HasPrefix(prompt, "Which (Enter"): // of the MCP clients
		return "0"
	case strings.HasPrefix(prompt, "Which"): // way to unlock
		return "none"
	case strings.HasPrefix(prompt, "What"): // to buy first
		return ""
	case strings.Contains(prompt, "arrived"):
		return "n"
	case strings.Contains(prompt, "/"):
		return "y"
	}
	return testworld.Passphrase
}

func (p *person) words(command string) ([]string, error) {
	command, _, _ = strings.Cut(command, " > ") // that is their shell's part
	words := strings.Fields(command)
	if len(words) < 2 || words[0] != "x402-wallet" {
		return nil, fmt.Errorf("%q is no command of x402-wallet", command)
	}
	for i, word := range words {
		word = strings.Trim(word, `'"`)
		if word == "FILE" {
			word = p.key()
		}
		if rest, ok := strings.CutPrefix(word, "~/"); ok { // their shell's part
			word = filepath.Join(p.home.User, rest)
		}
		words[i] = word
	}
	return words[1:], nil
}

const usage = 2

var (
	understood sync.Map // commands without their ids → error or nil
	ids        = regexp.MustCompile(`\b[a-z]+_[0-9A-Za-z]{8,}`)
)

// understands tells whether the real program takes a command: typed where nobody can be asked for a
// passphrase it fails, but not for its words.
func (p *person) understands(t *testing.T, command string) error {
	words, err := p.words(command)
	if err != nil {
		return err
	}
	key := ids.ReplaceAllString(strings.Join(words, " "), "ID")
	if before, known := understood.Load(key); known {
		err, _ := before.(error)
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := p.home.Command(ctx, testworld.Build(t), words...)
	cmd.Env = p.home.Env(lockedOut...)
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	isOver := strings.Contains(string(said), `"the approval apr_`) // by the time that this is asked
	if errors.As(err, &exit) && exit.ExitCode() == usage && !isOver {
		err = fmt.Errorf("%s: %s", command, said)
	} else {
		err = nil
	}
	understood.Store(key, err)
	return err
}
