package schemes

import (
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402/money"
)

func word(n uint64) string { return sandbox.Word(n) }

func wordOf(amount money.Amount) string { return sandbox.WordOf(amount) }

func topicOf(address string) string { return sandbox.TopicOf(address) }
