// Package lint checks what the compiler does not: that packages import only
// downward, that the pure ones stay pure, and a few habits of this repository.
//
// It owns the table of packages in table.go; a package that no row names is
// refused. It reads syntax only, without types, so it needs no build and works
// on a tree that does not compile yet. It promises to find what a person would
// write by accident; it does not try to stop one who hides a clock on purpose,
// behind a function value from elsewhere, say.
//
// Every check runs in the test of this package: go test ./internal/lint
package lint
