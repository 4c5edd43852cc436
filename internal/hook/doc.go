// Package hook tells somebody outside that the controller has changed: it runs
// a command, or posts to a URL.
//
// A hook gets a Change, a command in its environment, a URL as JSON. It has a
// goroutine of its own and a time limit; it is run once, and what goes wrong is
// logged. It can delay nothing, and nothing depends on it.
package hook
