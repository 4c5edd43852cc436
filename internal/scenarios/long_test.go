//go:build !faults

package scenarios

// longOr chooses between the size of a test that may take minutes and that of
// one in "make test".
func longOr[T any](_, usual T) T { return usual }
