package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"x402-wallet/internal/steps"
	"x402-wallet/pay"
	"x402-wallet/tools"
)

func (p *Program) callCommand(ui *ui) *cobra.Command {
	var f payFlags
	var arguments, resource, prompt string
	cmd := &cobra.Command{
		Use:   "call SERVER [TOOL | --resource URI | --prompt NAME] [KEY=VALUE | KEY:=JSON]...",
		Short: "Call a tool of an MCP server, read a resource or get a prompt, and pay if it asks",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return wants("SERVER")(cmd, args)
			}
			if strings.ContainsAny(args[0], "/.:") { // no name of a server in config.toml has those
				return webURL(args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			in := tools.CallIn{Server: args[0], Resource: resource, Prompt: prompt,
				IdempotencyKey: f.idempotencyKey}
			pairs := args[1:]
			if resource == "" && prompt == "" && len(pairs) > 0 {
				in.Tool, pairs = pairs[0], pairs[1:]
			}
			if in.Tool == "" && resource == "" && prompt == "" {
				if f.output != "" {
					return usagef("--output is for the content of a TOOL")
				}
				return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
					return askWallet(ui, "waiting for the server", func() (tools.ListOut, error) {
						return w.ListTools(ctx, args[0])
					}, ui.tools)
				})
			}
			var err error
			in.MaxAmount, err = maxAmount(f.most)
			if err != nil {
				return err
			}
			in.Arguments, err = toolArguments(arguments, pairs)
			if err != nil {
				return err
			}
			if f.dryRun {
				return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
					return askWallet(ui, "waiting for the server and the nodes",
						func() (pay.Estimate, error) {
							return w.Estimate(ctx, in)
						}, ui.estimate)
				})
			}
			f.output, err = place(f.output)
			if err != nil {
				return err
			}
			return p.with(cmd, ui, f.passphrase.or(nil), func(ctx context.Context, w *tools.Wallet) error {
				return ui.buy(ctx, w.Engine, f.output, func() (pay.Result, error) {
					return w.Pay(steps.Calling(ctx, cmd.CommandPath(), ""), in)
				})
			})
		},
	}
	cmd.Flags().StringVarP(&arguments, "arguments", "d", "", "the arguments, a `JSON` object")
	cmd.Flags().StringVar(&resource, "resource", "", "read the resource at this `URI`")
	cmd.Flags().StringVar(&prompt, "prompt", "", "get the prompt of this `NAME`")
	cmd.MarkFlagsMutuallyExclusive("resource", "prompt")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only say what it would cost; a free tool runs")
	f.add(cmd)
	cmd.MarkFlagsMutuallyExclusive("output", "dry-run")
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

func (u *ui) tools(out tools.ListOut) {
	var rows [][]string
	for _, t := range out.Tools {
		first, _, _ := strings.Cut(strings.TrimSpace(t.Description), "\n")
		name := strings.TrimSpace(t.Type + " " + t.Name)
		rows = append(rows, []string{safe(name), t.Price, safe(first)})
	}
	u.table([]string{"TOOL", "PRICE", "WHAT IT SAYS IT DOES"}, rows)
}
