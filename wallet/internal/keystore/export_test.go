package keystore

// What the tests see of this package, which are outside of it.

const (
	PlainHead   = plainHead
	PlainEVM    = plainEVM
	PlainPhrase = plainPhrase
	SecretText  = secretText
	KDFSize     = kdfSize
)

var (
	ErrPlaintext  = errPlaintext
	ReadPlaintext = readPlaintext
)
