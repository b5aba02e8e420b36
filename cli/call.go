package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"x402-wallet/tools"
)

func (p *Program) callCommand(ui *ui) *cobra.Command {
	var f payFlags
	var arguments string
	cmd := &cobra.Command{
		Use:   "call SERVER [TOOL [KEY=VALUE | KEY:=JSON]...]",
		Short: "Call a tool of a paid MCP server, and pay for it if it asks for payment",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{text: cmd.CommandPath() + " needs an argument: SERVER"}
			}
			return nil
		},
		Long: "Call a tool of a paid MCP server, and pay for it if it asks for payment and the owner's " +
			"rules allow it. SERVER is a name\n" +
			"under [servers] in config.toml, or an https URL; without a TOOL its tools are listed. " +
			"KEY=VALUE gives an argument as\n" +
			"text, KEY:=JSON as JSON. If the answer does not come, run the same command again: it cannot " +
			"pay twice.",
		Example: "  x402-wallet call weather\n" +
			"  x402-wallet call --max '$0.05' weather forecast city=Bergen days:=3\n" +
			"  x402-wallet call --dry-run https://mcp.example.com/mcp search --arguments '{\"q\":\"tides\"}'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return p.with(cmd, ui, func(ctx context.Context, w *tools.Wallet) error {
					return listTools(ctx, ui, w, args[0])
				})
			}
			in := tools.CallIn{Server: args[0], Tool: args[1], IdempotencyKey: f.idempotencyKey}
			var err error
			in.MaxAmount, err = maxAmount(f.most)
			if err != nil {
				return err
			}
			in.Arguments, err = toolArguments(arguments, args[2:])
			if err != nil {
				return err
			}
			if f.dryRun {
				return p.with(cmd, ui, func(ctx context.Context, w *tools.Wallet) error {
					done := ui.waiting("waiting for the server and the nodes")
					out, err := w.Estimate(ctx, in)
					done()
					return ui.estimate(out, err)
				})
			}
			return p.withKey(cmd, ui, passphraseSource{fd: f.passphraseFD}.or(nil),
				func(ctx context.Context, w *tools.Wallet) error {
					done := ui.buying(ctx)
					out, err := w.Pay(ctx, in)
					done()
					return ui.bought(ctx, w, out, err)
				})
		},
	}
	cmd.Flags().StringVar(&arguments, "arguments", "", "the tool's arguments, a `JSON` object")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only say what it would cost; a free tool runs")
	f.add(cmd)
	return cmd
}

// toolArguments reads a JSON object, or pairs as httpie writes them.
func toolArguments(object string, pairs []string) (json.RawMessage, error) {
	if object != "" && len(pairs) > 0 {
		return nil, usageError{text: "arguments are given twice",
			hint: "write them as --arguments JSON, or as KEY=VALUE"}
	}
	if len(pairs) == 0 {
		if object != "" && !json.Valid([]byte(object)) {
			return nil, usageError{text: "--arguments is not JSON",
				hint: `an object is written '{"city":"Bergen"}', in single quotes`}
		}
		return json.RawMessage(object), nil
	}
	values := map[string]json.RawMessage{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		raw, isJSON := json.RawMessage(value), strings.HasSuffix(key, ":")
		key = strings.TrimSuffix(key, ":")
		if !isJSON {
			raw, _ = json.Marshal(value) // of text: cannot fail
		}
		if _, twice := values[key]; !ok || key == "" || twice || !json.Valid(raw) {
			return nil, usageError{text: fmt.Sprintf("%q is not an argument, or is given twice", pair),
				hint: "write KEY=TEXT, or KEY:=JSON"}
		}
		values[key] = raw
	}
	return json.Marshal(values)
}

func listTools(ctx context.Context, ui *ui, w *tools.Wallet, server string) error {
	done := ui.waiting("waiting for the server")
	out, err := w.ListTools(ctx, server)
	done()
	if err != nil {
		return err
	}
	if ui.json {
		return ui.printJSON(out)
	}
	var rows [][]string
	for _, t := range out.Tools {
		first, _, _ := strings.Cut(strings.TrimSpace(t.Description), "\n")
		rows = append(rows, []string{safe(t.Name), t.Price, safe(first)})
	}
	ui.table([]string{"TOOL", "PRICE", "WHAT IT SAYS IT DOES"}, rows)
	return nil
}
