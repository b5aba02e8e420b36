package owner

// lockDir has nothing to do: the second one finds the file changed.
func lockDir(string) (unlock func(), err error) { return func() {}, nil }
