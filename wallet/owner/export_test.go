package owner

// What the tests see of this package, which are outside of it: they need package recovery, which imports it.

const DefaultN = defaultN

var (
	Replace       = replace
	OpensWith     = opensWith
	CreateTemp    = createTemp
	StillNamed    = stillNamed
	Generate      = generate
	WithRoom      = withRoom
	HasAccountsOf = hasAccountsOf
	Encrypt       = encrypt
	Marshal       = marshal
	Plaintext     = plaintext
)
