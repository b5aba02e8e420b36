package agent

import (
	"context"
	"encoding/hex"
	"errors"

	"x402-wallet/history"
	"x402-wallet/internal/passkey"
	"x402-wallet/x402"
)

// Approver makes the owner's approval of a payment out of a passkey's yes, with the key of this process. In
// the unlock agent it believes nobody but the passkey: who asks it runs as the same user, and gets a question
// about what the agent itself reads in the ledger.
type Approver struct {
	Store *history.Store
	Guard approving
	// Passkeys are those of the owner's rules, if these are sealed and match their seal.
	Passkeys func(ctx context.Context) (map[string]passkey.Key, error)
	Checker  *passkey.Checker
}

// approving is seal.Guard.
type approving interface {
	Approve(ctx context.Context, shown history.Approval, by string) (history.Approval, error)
}

// Question is about one approval, as it was shown in one browser.
type Question struct {
	ID      string `json:"id"`
	Shown   string `json:"shown"`   // history.Approval.ShownDigest, hex
	Browser string `json:"browser"` // names it, and nothing else
}

// QuestionOf is the question about an approval that was shown.
func QuestionOf(shown history.Approval, browser string) Question {
	digest := shown.ShownDigest()
	return Question{ID: shown.ID, Shown: hex.EncodeToString(digest[:]), Browser: browser}
}

func (q Question) about() [32]byte { return passkey.About("approve", q.ID, q.Shown, q.Browser) }

// asked is the approval that a question is about. INVALID_ARGUMENT: it is not what was shown.
func (a *Approver) asked(ctx context.Context, q Question) (history.Approval, error) {
	row, err := a.Store.Asked(ctx, q.ID)
	if err != nil {
		return row, err
	}
	if QuestionOf(row, q.Browser) != q {
		return row, x402.Errorf(x402.InvalidArgument, "the approval %s changed after it was shown", q.ID)
	}
	return row, nil
}

// Challenge is what a passkey signs to say yes.
func (a *Approver) Challenge(ctx context.Context, q Question) ([]byte, error) {
	if _, err := a.asked(ctx, q); err != nil {
		return nil, err
	}
	return a.Checker.Challenge(q.about()), nil
}

// Approve records the owner's approval, sealed, by a passkey's answer to a Challenge. POLICY_DENIED: the
// answer is none of a passkey that the sealed rules have, to this question.
func (a *Approver) Approve(ctx context.Context, q Question, answer []byte) error {
	row, err := a.asked(ctx, q)
	if err != nil {
		return err
	}
	keys, err := a.Passkeys(ctx)
	if err != nil {
		return err
	}
	name, err := a.Checker.Check(keys, q.about(), answer)
	if err != nil {
		return x402.Errorf(x402.PolicyDenied, "this is no yes of the owner's passkeys: %w", err).
			WithHint("open the approval's page again; x402-wallet approve %s takes the passphrase", q.ID)
	}
	_, err = a.Guard.Approve(ctx, row, "passkey "+name)
	if errors.Is(err, history.ErrDecided) {
		return x402.Errorf(x402.InvalidArgument, "the approval %s was used already, or has expired", q.ID)
	}
	return err
}

// PasskeyRequest asks for a question, or with an answer for the approval.
type PasskeyRequest struct {
	Question
	Answer []byte `json:"answer,omitempty"`
}

// passkey answers that.
func (s *Server) passkey(ctx context.Context, q *PasskeyRequest) ([]byte, error) {
	if q == nil || s.Approver == nil {
		return nil, refuse("it is not told what")
	}
	if q.Answer == nil {
		return s.Approver.Challenge(ctx, q.Question)
	}
	return nil, s.Approver.Approve(ctx, q.Question, q.Answer)
}
