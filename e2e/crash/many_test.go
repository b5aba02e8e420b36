//go:build crash && linux

package crash

import (
	"strings"

	"x402-wallet/e2e/schemes"
)

// A batch: three purchases on two chains under one ceiling, made by one call.

// manyPaths are the requests of the batch, as paths of the seller.
var manyPaths = []string{"/weather?many=1", "/solana?many=2", "/weather?many=3"}

const manyCeiling = 3_000 // micro-dollars: everything here costs a tenth of a cent

// manyRows are a batch's answer.
type manyRows struct {
	Rows []answer
	answer
}

// paysMany is the batch's call over MCP, from the process's start to its end.
func paysMany(r *run) error {
	p, err := r.start(r.bin, true, r.fault, "mcp")
	if err != nil {
		return err
	}
	defer func() {
		p.kill()
		r.calls, r.hit = p.watched()
	}()
	if err := p.initialize(); err != nil {
		r.broke("initialize", err, p)
		return nil
	}
	if _, ok := r.batch(p, "the broken process"); !ok {
		return nil
	}
	if err := p.end(); err != nil && !r.died(p) {
		r.broke("end", err, p)
	}
	return nil
}

// batch makes the batch's call, and holds its rows against what sellers and chains saw.
func (r *run) batch(p *process, who string) (rows []answer, ok bool) {
	var requests []map[string]any
	for _, path := range manyPaths {
		requests = append(requests, map[string]any{"url": r.SellerURL + path})
	}
	args := map[string]any{"requests": requests, "maxAmount": "$0.003", "idempotencyKey": r.scenario.key}
	before := r.Presentations()
	var result struct{ StructuredContent manyRows }
	err := p.ask("tools/call", map[string]any{"name": "x402_pay_many", "arguments": args}, &result)
	if err != nil {
		r.broke(who, err, p)
		return nil, false
	}
	got := result.StructuredContent
	r.note("%s: %s %v", who, got.answer, got.Rows)
	if sent := r.Presentations() - before; got.answer.Error != "" && sent > 0 {
		r.violation("%s says that nothing was bought (%s), but a signed payment left during the call", who,
			got.answer)
	}
	for i, a := range got.Rows {
		path, _, _ := strings.Cut(manyPaths[i], "?")
		if a.got() && a.Content != schemes.Content(path) {
			r.violation("%s has not the content of row %d: %q", who, i, a.Content)
		}
	}
	r.withinMany(who)
	return got.Rows, true
}

// withinMany: each row is signed for and settled once at most, and all together within the ceiling.
func (r *run) withinMany(who string) {
	var sum uint64
	for _, s := range r.Settlements() {
		sum += s.Amount
	}
	if n := len(r.Settlements()); n > len(manyPaths) || sum > manyCeiling {
		r.violation("%s: %d settlements of %d in all", who, n, sum)
	}
	if n := r.Signatures(); n > len(manyPaths) {
		r.violation("%s: signed again: %d different payments were seen", who, n)
	}
}

// many is the judgement of a batch: after two restarts the same call has every row.
func (r *run) many() {
	r.withinMany("the broken process")
	for _, who := range []string{"the first restart", "the second restart"} {
		isOver := r.restart(who, func(p *process) {
			rows, ok := r.batch(p, who)
			for i := range manyPaths {
				if ok && who == "the second restart" && (i >= len(rows) || !rows[i].paid()) {
					r.violation("after two restarts row %d of the same batch still fails: %v", i, rows)
				}
			}
			if err := p.end(); err != nil {
				r.violation("%s does not end well: %v; its log: %s", who, err, p.stderr)
			}
		})
		if !isOver {
			return
		}
	}
	if n := len(r.Settlements()); n != len(manyPaths) {
		r.violation("%d settlements for %d purchases", n, len(manyPaths))
	}
	r.ledger()
}
