package history

// syncDirectory makes the names in a directory durable, which Windows does by itself.
func syncDirectory(string) error { return nil }
