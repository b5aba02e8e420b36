package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
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

// The words of the audit chain for what happened to a question.
const (
	saidAsked   = "asked"
	saidYes     = "yes"
	saidNo      = "no"
	saidNothing = audit.SaidNothing // its dialog was closed, or nobody came

	byOwner = "owner" // who decided in a terminal or on the dashboard
)

// question is an approval as the audit chain's rows tell of it.
type question struct {
	ID       string        `json:"id"`
	Host     string        `json:"host"`
	Resource string        `json:"resource"` // Payment.Resource: no query, no spelling of a path
	Price    money.Dollars `json:"price"`
	Session  string        `json:"session,omitempty"` // the process whose client asks
	Agent    string        `json:"agent,omitempty"`   // whose question it is; "": of a caller without a name
	Said     string        `json:"said"`
	By       string        `json:"by,omitempty"`
	Declined int           `json:"declined,omitempty"`
	PayTo    string        `json:"payTo,omitempty"`
	Network  string        `json:"network,omitempty"`

	// the columns that are set: Row is over those that never change
	Row     string `json:"row,omitempty"`
	Expires int64  `json:"expires,omitempty"`
	Since   int64  `json:"since,omitempty"`
	Seal    string `json:"seal,omitempty"`
}

func (a Approval) question(said, by string) question {
	return question{ID: a.ID, Agent: a.Agent, Host: a.Host, Price: a.Price, Said: said, By: by,
		Declined: a.declined, Resource: Payment{Method: a.Method, Host: a.Host, URL: a.URL}.Resource()}
}

// again reports whether q is the question that was asked before: for the same thing, and not for
// half the price or less. Another payee, body, header, network or token makes it no other. A sign-in, which
// costs nothing, is another question than a payment: a no to one is none to the other.
func (q question) again(before question) bool {
	bothFree, bothCost := q.Price == 0 && before.Price == 0, q.Price > 0 && before.Price > 0
	return q.Resource == before.Resource && (bothFree || (bothCost && q.Price > before.Price/2))
}

// site is a host without its port: a seller has thousands of them.
func (q question) site() string {
	name, _, _ := strings.Cut(q.Host, ":")
	if strings.HasPrefix(q.Host, "[") {
		name, _, _ = strings.Cut(q.Host, "]")
	}
	return name
}

// Declined says that nobody is asked, because a person said no to as much a short time ago.
type Declined struct {
	ID    string // of the approval that was declined last
	About string // "this" payment, payments to this "host", all that this "agent" asks for, or "all"
	Times int
	Until time.Time
}

func (d *Declined) Error() string {
	return fmt.Sprintf("a person said no %d times; nobody is asked again before %s", d.Times,
		d.Until.Format(time.RFC3339))
}

// TooManyPending says that no question was opened, because as many as Limit wait already.
type TooManyPending struct {
	About string // questions about this "host", of this "agent" (or process), or "all"
	Limit int
}

func (e *TooManyPending) Error() string {
	return fmt.Sprintf("%d approvals are waiting for a person", e.Limit)
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
func (h *priorAnswers) isFirst(kind string, q question) bool {
	list := ListOf(q.ID)
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
	last  question  // the newest
	until time.Time // when there are fewer than most again
}

func (n *denials) add(q question, at time.Time, most int) {
	if n.times == 0 {
		n.last = q
	}
	weight := 1
	if q.By == byOwner {
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
			return &Declined{ID: c.last.ID, About: c.about, Times: c.times, Until: c.until}
		}
	}
	return nil
}

// full is why no other question may be opened; nil: one may.
func (h priorAnswers) full() error {
	switch {
	case h.pendingHost >= maxPendingHost:
		return &TooManyPending{About: "host", Limit: maxPendingHost}
	case h.pendingSession >= maxPendingSession:
		return &TooManyPending{About: "agent", Limit: maxPendingSession}
	case h.pending >= maxPending:
		return &TooManyPending{About: "all", Limit: maxPending}
	case h.pendingAll >= maxPendingAll:
		return &TooManyPending{About: "all", Limit: maxPendingAll}
	}
	return nil
}

var errFarEnough = errors.New("far enough back")

// priorAnswers reads the chain's rows about approvals from its end back, as far as a question waits. A yes
// ends the noes before it to the same question: the person who gave it has looked again.
func (t *tx) priorAnswers(asked question) (h priorAnswers, err error) {
	latest, yes := map[string]string{}, false
	err = t.Each(func(row sqldb.Row) error {
		var micro int64
		var event, detail string
		if err := row.Scan(&micro, &event, &detail); err != nil {
			return err
		}
		at := fromMicros(micro)
		if !at.Add(waitFor).After(t.Now) {
			return errFarEnough
		}
		var q question
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
		case q.Said == saidAsked && latest[q.ID] == audit.ApprovalEvent+string(Pending):
			h.addPending(asked, q)
		case q.Said == saidYes:
			yes = yes || (q.Agent == asked.Agent && q.Resource == asked.Resource && asked.Price <= q.Price)
		case q.Said == saidNo && fresh:
			h.addDenial(asked, q, at, yes)
		case q.Said == saidNothing && fresh && !yes && q.Agent == asked.Agent && asked.again(q):
			h.unanswered++
		}
		return nil
	}, `SELECT at, event, detail FROM audit WHERE payment = 0 ORDER BY seq DESC`)
	if errors.Is(err, errFarEnough) {
		err = nil
	}
	return h, err
}

func (h *priorAnswers) addPending(asked, q question) {
	isNew := h.isFirst("pending", q)
	if isNew {
		h.pendingAll++
	}
	if q.Agent != asked.Agent {
		return
	}
	if q.site() == asked.site() && h.isFirst("pending at", q) {
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

func (h *priorAnswers) addDenial(asked, q question, at time.Time, yes bool) {
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
	if q.site() == asked.site() && h.isFirst("no at", q) {
		h.noHost.add(q, at, maxNoHost)
	}
	if !yes && asked.again(q) && h.isFirst("no to", q) {
		h.no.add(q, at, maxNo)
	}
}
