package cli

import (
	"fmt"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestGauge(t *testing.T) {
	for i, line := range []struct {
		spent, held, limit int64
		want               string
	}{
		{0, 0, 100, "··········   0%"},
		{1, 0, 1000, "█·········   0%"}, // something is not nothing
		{50, 0, 100, "█████·····  50%"},
		{50, 20, 100, "█████▒▒···  70%"},
		{50, 1, 100, "█████▒····  51%"},
		{999, 0, 1000, "█████████·  99%"}, // and nearly all is not all
		{95, 1, 100, "█████████·  96%"},
		{0, 1000, 1000, "▒▒▒▒▒▒▒▒▒▒ 100%"},
		{1000, 0, 1000, "██████████ 100%"},
		{2000, 0, 1000, "██████████ 200%"}, // a limit that was lowered
		{0, 0, 0, "██████████ 100%"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			got, _ := gauge(line.spent, line.held, line.limit)
			require.Equal(t, line.want, got, "%+v", line)
		})
	}
}

func TestBar(t *testing.T) {
	require.Empty(t, bar(0, 100))
	require.Equal(t, "▏", bar(1, 1_000_000))
	require.Equal(t, barWidth, utf8.RuneCountInString(bar(100, 100)))
	require.Equal(t, barWidth/2, utf8.RuneCountInString(bar(50, 100)))
	require.Equal(t, "█████▌", bar(55, 400))
}
