// Package demobroker is a broker without data, for demonstrations: it obeys
// every command at once, and as a leader it reports each follower as caught up
// a while after that is back.
//
// It owns nothing but that rule and the goroutine that applies it. It does not
// copy data, so being in the ISR means nothing here.
package demobroker
