package pay

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

func serves(status int, text string) script {
	return func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		a, err := honest(s, nonce, amount)
		if err == nil {
			a.Status, a.Content = status, []byte(text)
		}
		return a, err
	}
}

// Every answer that is no error says what can be done next, and none of them sends anybody to pay twice.
func TestWhatComesNext(t *testing.T) {
	b := newBench(t, "10000", serves(200, "sunny"))
	q := get(testURL)
	q.IdempotencyKey = "one"
	r := must.Get(b.Pay(t.Context(), q))(t)
	require.Equal(t, x402.Next{Do: x402.Done}, r.Next)
	b.Delivered(t.Context(), r.Status, r.PaymentID)
	bought := b.only(t).Created.UTC().Format(time.RFC3339)
	r = must.Get(b.Pay(t.Context(), q))(t)
	require.Equal(t, x402.Done, r.Next.Do)
	require.Equal(t, "nothing paid now; bought "+bought, r.Next.Why)

	b.seller.script = serves(200, strings.Repeat("é", MaxPiece))
	r = b.mustPay(t, testURL+"?long")
	require.Equal(t, []any{firstPiece, 2 * MaxPiece, true, "x402://payments/" + r.PaymentID + "/content"},
		[]any{len(r.Content), r.ContentLength, r.ContentTruncated, r.ContentURI})
	require.Equal(t, step(x402.Change, "already bought, do not pay again: x402_history with paymentId %q "+
		"and offset 8192 reads on, with find it searches", r.PaymentID), r.Next)

	b.seller.script = serves(200, "\x89PNG\xff")
	r = b.mustPay(t, testURL+"?picture")
	require.Equal(t, []any{"", 5, true}, []any{r.Content, r.ContentLength, r.ContentTruncated})
	require.Equal(t, "x402-wallet show "+r.PaymentID+" --content", r.Next.Command)

	b.seller.script = serves(500, "sorry")
	r = b.mustPay(t, testURL+"?broken")
	require.Equal(t, []any{StatusUnserved, x402.Repeat}, []any{r.Status, r.Next.Do})
	b.later()
	r = b.mustPay(t, testURL+"?broken")
	require.Equal(t, []any{StatusUnserved, x402.AskPerson, "x402-wallet show " + r.PaymentID + " --receipt"},
		[]any{r.Status, r.Next.Do, r.Next.Command}, "nobody serves a payment that has expired")
}

func TestNotServedAndNotPaid(t *testing.T) {
	b := newBench(t, "", honest)
	for _, c := range []struct {
		seller.Answer
		status string
		next   x402.Step
	}{
		{seller.Answer{Status: 200}, StatusFree, x402.Done},
		{seller.Answer{Status: 204}, StatusFree, x402.Done},
		{seller.Answer{Status: 304}, StatusNotPaid, x402.Change},
		{seller.Answer{Status: 404}, StatusNotPaid, x402.Change},
		{seller.Answer{Status: 429}, StatusNotPaid, x402.Wait},
		{seller.Answer{Status: 503}, StatusNotPaid, x402.Wait},
		{seller.Answer{Status: 500, ToolFailed: true}, StatusNotPaid, x402.Change},
	} {
		r := b.Free(t.Context(), &c.Answer)
		require.Equal(t, []any{c.status, c.next}, []any{r.Status, r.Next.Do}, "%+v", c.Answer)
	}
	long := b.Free(t.Context(), &seller.Answer{Status: 200, Content: []byte(strings.Repeat("a", MaxPiece+1))})
	require.Equal(t, []any{MaxPiece, MaxPiece + 1, true, "", x402.Change},
		[]any{len(long.Content), long.ContentLength, long.ContentTruncated, long.ContentURI, long.Next.Do},
		"nothing keeps the rest: as much of it as an answer carries")
}

// No piece cuts a character in two, and the pieces in a row are the whole.
func TestPieces(t *testing.T) {
	text := strings.Repeat("aé€😀", 50)
	for length := 1; length < 12; length++ {
		var all strings.Builder
		for at, n := 0, 0; ; n++ {
			require.Less(t, n, len(text))
			p := Part(contentOf(&seller.Answer{Content: []byte(text)}), at, length)
			require.LessOrEqual(t, len(p.Text), max(length, 4))
			all.WriteString(p.Text)
			at = p.Next
			if at == 0 {
				break
			}
		}
		require.Equal(t, text, all.String(), length)
	}
	c := contentOf(&seller.Answer{Content: []byte(text)})
	require.Equal(t, Piece{Text: "é", Offset: 1, Next: 3}, Part(c, 2, 2), "from its first byte")
	require.Equal(t, Piece{Offset: len(text)}, Part(c, len(text), 9))
	require.Equal(t, "a\uFFFDb", Part(contentOf(&seller.Answer{Content: []byte("a\xffb")}), 0, 9).Text)
}
