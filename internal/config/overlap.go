package config

// overlap reports whether there is a name that both patterns mean.
func overlap(a, b string) bool {
	// meets[j]: the rest of a that was looked at and b[j:] mean a name together
	meets := make([]bool, len(b)+1)
	for i := len(a); i >= 0; i-- {
		was := false // what meets[j+1] was for a[i+1:]
		for j := len(b); j >= 0; j-- {
			below := meets[j] // for a[i+1:]
			onA, onB := i < len(a), j < len(b)
			switch {
			case !onA && !onB:
				meets[j] = true
			case onA && a[i] == '*':
				meets[j] = below || (onB && meets[j+1])
			case onB && b[j] == '*':
				meets[j] = meets[j+1] || (onA && below)
			default:
				meets[j] = onA && onB && a[i] == b[j] && was
			}
			was = below
		}
	}
	return meets[0]
}
