package asking

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

// How often a person may be asked, so that no agent wears one down. What was asked and said before is
// read back from the audit chain and from nowhere else: who empties the table of approvals is asked
// no more often for it.
const (
	// maxPending bounds the questions that wait of all callers without a name, so that an agent cannot bury
	// the one that matters; those of one seller and of one process leave room for the others'. An agent with
	// a name has as many as a process has, in whatever processes, and as many of one seller: its own.
	maxPending, maxPendingHost, maxPendingSession = 100, 5, 20
	// maxPendingAll bounds them all: several times what any one of them can take.
	maxPendingAll = 400
	// noFor is how long a no to one question is heard in others like it.
	noFor = time.Hour
	// maxNo is after how many of them the same question is not asked again. The owner's own no, in a
	// terminal or on the dashboard, says it at once.
	maxNo = 2
	// maxNoHost and maxNoAgent are the same for all questions about one seller, and for all there are: what
	// an agent varies to ask again is the path, and then the host. Each agent, and those without a name
	// together, hear the noes to their own questions.
	maxNoHost, maxNoAgent = 6, 20
	// maxNoAll is the same for what all of them ask: several times what any one of them can come to.
	maxNoAll = 100
)

// isAgain reports whether q is the question that was asked before: for the same thing, and not for
// half the price or less. Another payee, body, header, network or token makes it no other. A sign-in, which
// costs nothing, is another question than a payment: a no to one is none to the other.
func isAgain(q, before history.ApprovalRecord) bool {
	bothFree, bothCost := q.Price == 0 && before.Price == 0, q.Price > 0 && before.Price > 0
	return q.Resource == before.Resource && (bothFree || (bothCost && q.Price > before.Price/2))
}

// siteOf is a host without its port: a seller has thousands of them.
func siteOf(q history.ApprovalRecord) string {
	name, _, _ := strings.Cut(q.Host, ":")
	if strings.HasPrefix(q.Host, "[") {
		name, _, _ = strings.Cut(q.Host, "]")
	}
	return name
}

// priorAnswers are the open questions and the answers on the chain that count before a question is asked:
// of the same agent's, but for pendingAll and noAll.
type priorAnswers struct {
	pending, pendingHost, pendingSession, pendingAll int

	no, noHost, noAgent, noAll denials
	unanswered                 int

	counted map[string]bool // of which lists what was counted
}

// isFirst reports whether nothing of this kind was counted of q's list yet: a list is one question.
func (h *priorAnswers) isFirst(kind string, q history.ApprovalRecord) bool {
	list := history.ListOf(q.ID)
	if list == q.ID {
		return true
	}
	key := fmt.Sprintf("%s %s %d", kind, list, q.Declined)
	if h.counted[key] {
		return false
	}
	if h.counted == nil {
		h.counted = map[string]bool{}
	}
	h.counted[key] = true
	return true
}

// denials counts one kind of no, from the newest back.
type denials struct {
	times int
	last  history.ApprovalRecord // the newest
	until time.Time              // when there are fewer than most again
}

func (n *denials) add(q history.ApprovalRecord, at time.Time, most int) {
	if n.times == 0 {
		n.last = q
	}
	weight := 1
	if q.By == history.ByOwner {
		weight = maxNo
	}
	if n.times < most {
		n.until = at.Add(noFor)
	}
	n.times += weight
}

// refusal is why a question is not to be asked because of what was said; nil: it may be.
func (h priorAnswers) refusal() error {
	for _, c := range []struct {
		denials
		about string
		most  int
	}{{h.no, "this", maxNo}, {h.noHost, "host", maxNoHost}, {h.noAgent, "agent", maxNoAgent},
		{h.noAll, "all", maxNoAll}} {
		if c.times >= c.most {
			return &history.Declined{ID: c.last.ID, About: c.about, Times: c.times, Until: c.until}
		}
	}
	return nil
}

// full is why no other question may be opened; nil: one may.
func (h priorAnswers) full() error {
	switch {
	case h.pendingHost >= maxPendingHost:
		return &history.TooManyPending{About: "host", Limit: maxPendingHost}
	case h.pendingSession >= maxPendingSession:
		return &history.TooManyPending{About: "agent", Limit: maxPendingSession}
	case h.pending >= maxPending:
		return &history.TooManyPending{About: "all", Limit: maxPending}
	case h.pendingAll >= maxPendingAll:
		return &history.TooManyPending{About: "all", Limit: maxPendingAll}
	}
	return nil
}

var errFarEnough = errors.New("far enough back")

// readPrior reads the chain's rows about approvals from its end back, as far as a question waits. A yes
// ends the noes before it to the same question: the person who gave it has looked again.
func readPrior(t *history.Asking, asked history.ApprovalRecord) (h priorAnswers, err error) {
	latest, yes := map[string]string{}, false
	err = t.Each(func(row sqldb.Row) error {
		var micro int64
		var event, detail string
		if err := row.Scan(&micro, &event, &detail); err != nil {
			return err
		}
		at := sqldb.FromMicros(micro)
		if !at.Add(history.AnswerTime).After(t.Now) {
			return errFarEnough
		}
		var q history.ApprovalRecord
		isApproval := strings.HasPrefix(event, audit.ApprovalEvent)
		isReadable := json.Unmarshal([]byte(detail), &q) == nil
		if !isApproval || !isReadable {
			return nil
		}
		if latest[q.ID] == "" {
			latest[q.ID] = event
		}
		fresh := at.Add(noFor).After(t.Now)
		switch {
		case q.Said == history.SaidAsked && latest[q.ID] == audit.ApprovalEvent+string(history.Pending):
			h.addPending(asked, q)
		case q.Said == history.SaidYes:
			yes = yes || (q.Agent == asked.Agent && q.Resource == asked.Resource && asked.Price <= q.Price)
		case q.Said == history.SaidNo && fresh:
			h.addDenial(asked, q, at, yes)
		case q.Said == history.SaidNothing && fresh && !yes && q.Agent == asked.Agent && isAgain(asked, q):
			h.unanswered++
		}
		return nil
	}, `SELECT at, event, detail FROM audit WHERE payment = 0 ORDER BY seq DESC`)
	if errors.Is(err, errFarEnough) {
		err = nil
	}
	return h, err
}

func (h *priorAnswers) addPending(asked, q history.ApprovalRecord) {
	isNew := h.isFirst("pending", q)
	if isNew {
		h.pendingAll++
	}
	if q.Agent != asked.Agent {
		return
	}
	if siteOf(q) == siteOf(asked) && h.isFirst("pending at", q) {
		h.pendingHost++
	}
	if !isNew {
		return
	}
	h.pending++
	if q.Session == asked.Session || asked.Agent != "" {
		h.pendingSession++
	}
}

func (h *priorAnswers) addDenial(asked, q history.ApprovalRecord, at time.Time, yes bool) {
	isNew := h.isFirst("no", q)
	if isNew {
		h.noAll.add(q, at, maxNoAll)
	}
	if q.Agent != asked.Agent {
		return
	}
	if isNew {
		h.noAgent.add(q, at, maxNoAgent)
	}
	if siteOf(q) == siteOf(asked) && h.isFirst("no at", q) {
		h.noHost.add(q, at, maxNoHost)
	}
	if !yes && isAgain(asked, q) && h.isFirst("no to", q) {
		h.no.add(q, at, maxNo)
	}
}
