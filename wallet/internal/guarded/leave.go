package guarded

// Leave shows that a package of the wallet asks: nobody else can make one that is given.
type Leave struct{ given bool }

// GiveLeave is for the packages of the wallet.
func GiveLeave() Leave { return Leave{given: true} }

func (l Leave) IsGiven() bool { return l.given }
