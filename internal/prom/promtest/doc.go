// Package promtest checks tables of metrics in tests.
package promtest
