// Package unfenced is the switch that takes the gate out of a broker, for the
// tests that must find out when it is missing.
//
// It owns nothing but the switch. Code outside this module cannot import it,
// so what it ships cannot be built without a gate.
package unfenced
