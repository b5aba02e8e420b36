package history

// For benchmarks of packages that this package's own tests cannot import.
var Million = million

// Size is how many payments it has.
func Size() int { return *size }
