// Package durations counts durations by size, as plain values: what pure code
// measures can be copied, and shown as a histogram of whatever kind.
package durations
