//go:build !unix

package child

// KeepDescriptors does nothing here: a program gets the handles that it is given, and no others.
func KeepDescriptors() {}
