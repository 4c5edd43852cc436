// Package unfenced is the switch that takes a safety part out: the gate of a
// broker, the guards of the controller's writes, and whatever else has a field
// of type Switch. It is for the tests that must find out when one is missing.
//
// It owns nothing but the switch. Code outside this module cannot import it,
// and within it only tests may open it (see package lint): what ships has all
// its safety parts.
package unfenced
