package budget

import (
	"fmt"
	"time"

	"x402-wallet/x402"
)

// RateWindow is the window of Rules.Rate, and of a node's.
const RateWindow = time.Minute

// RateUse is how much of a rate is used.
type RateUse struct {
	LastMinute int // payments of the last minute, failed ones too: an attempt is an attempt
	// when the oldest of the newest payments was made, of as many as the rate allows: only when that is a
	// minute ago does another one pass. Zero below the rate.
	Since time.Time
}

type rate struct {
	of   Window // whose payments; zero: all
	most int
	use  RateUse
}

// rates are the owner's, and those of an agent's path.
func (r Rules) rates(agent string, facts Facts) []rate {
	list := []rate{{most: r.Rate, use: RateUse{LastMinute: facts.LastMinute, Since: facts.RateSince}}}
	for _, limit := range r.nodeRates(agent) {
		of := limit.Window
		list = append(list, rate{of: of, most: limit.Max, use: facts.NodeRates[of.Node()]})
	}
	return list
}

// nodeRates are the rates of an agent's path, the owner's apart.
func (r Rules) nodeRates(agent string) (list []RateLimit) {
	for _, n := range r.path(agent) {
		if n.rate != 0 {
			list = append(list, RateLimit{Max: n.rate, Per: RateWindow, Window: n.window()})
		}
	}
	return list
}

func (l rate) isFull() bool { return l.use.LastMinute >= l.most }

func (l rate) free() time.Time { return l.use.Since.Add(RateWindow) }

// whose says whose rate it is, in a text: "", or " the agent NAME".
func (l rate) whose() string { return whose(l.of) }

// whose names the node of a window, with a space before it; "" for the owner's own.
func whose(w Window) string {
	switch {
	case w.Agent != "":
		return " the agent " + w.Agent
	case w.Team != "":
		return " the team " + w.Team
	}
	return ""
}

func (r Rules) checkRate(agent string, facts Facts) error {
	for _, l := range r.rates(agent, facts) {
		if !l.isFull() {
			continue
		}
		e := x402.Errorf(x402.RateLimited, "%d payments in the last minute; the owner allows%s %d",
			l.use.LastMinute, l.whose(), l.most).
			WithHint("wait until %s", x402.Stamp(l.free())).WithDetail("limit", l.most).
			WithDetail("resetsAt", x402.Stamp(l.free())).WaitUntil(l.free(), "")
		detailNode(e, l.of)
		return e
	}
	return nil
}

// detailNode adds to a refusal which agent's or team's limit it is by.
func detailNode(e *x402.Error, w Window) {
	switch {
	case w.Agent != "":
		e.WithDetail("layer", agentLayer).WithDetail("agent", w.Agent)
	case w.Team != "":
		e.WithDetail("layer", teamLayer).WithDetail("team", w.Team)
	}
}

// moves says when a full rate lets the next payment pass, and what moves that.
func (l rate) moves() string {
	return fmt.Sprintf("the rate allows%s the next payment at %s, a minute after the oldest of the last %d; "+
		"each payment moves that", l.whose(), x402.Stamp(l.free()), l.most)
}
