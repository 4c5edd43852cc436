// Package netproxy is a TCP proxy on loopback that can be a bad network: it
// cuts, swallows and delays what two processes send each other.
//
// It knows nothing of what it carries. Faults in single calls are the business
// of whoever speaks the protocol.
package netproxy
